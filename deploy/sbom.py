"""`make sbom`: what we ship as CycloneDX, in `build/sbom`, one file for each product of `deploy/shipped.py`.

Two runs on the same tree write the same files: they have no time and no random number.
"""

import json
import sys
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

import tarry
from deploy.shipped import PRODUCTS, ROOT, Part, parts_of

INTO: Final = ROOT / "build" / "sbom"


def component(part: Part) -> Component:
    """Return a part as CycloneDX describes it."""
    group, _, name = part.name.rpartition(":")
    kind = {"PyPI": "pypi", "Maven": "maven"}[part.ecosystem]
    # A purl of Maven has a group: without one, nobody could look the part up.
    purl = PackageURL(kind, group or None, name, part.version) if group or kind == "pypi" else None
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else []
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        group=group or None,
        version=part.version,
        purl=purl,
        # Jars of several platforms have one purl.
        bom_ref="#".join([str(purl or f"jar:{name}@{part.version}"), *filter(None, [part.sha256[:12]])]),
        hashes=hashes,
    )


def document(product: str, parts: list[Part]) -> str:
    """Return the bill of materials of a product, as JSON."""
    whole = Component(
        type=ComponentType.APPLICATION if product == "broker" else ComponentType.CONTAINER,
        name=f"tarry-{product}",
        version=tarry.__version__,
        bom_ref=f"tarry-{product}",
    )
    bom = Bom(
        components=[component(part) for part in parts], serial_number=uuid5(NAMESPACE_URL, repr((product, parts)))
    )
    bom.metadata.component = whole
    bom.register_dependency(whole, bom.components)
    made = json.loads(JsonV1Dot6(bom).output_as_string())
    del made["metadata"]["timestamp"]  # so that equal content gives equal files
    return json.dumps(made, indent=2) + "\n"


def main() -> None:
    """Write the files."""
    INTO.mkdir(parents=True, exist_ok=True)
    for product in PRODUCTS:
        parts = parts_of(product)
        path = INTO / f"{product}.cdx.json"
        path.write_text(document(product, parts), encoding="utf-8")
        jars = sum(part.ecosystem == "Maven" for part in parts)
        sys.stdout.write(f"{path.relative_to(Path.cwd())}: {len(parts) - jars} packages, {jars} jars\n")


if __name__ == "__main__":
    main()
