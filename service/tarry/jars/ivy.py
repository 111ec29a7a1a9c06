"""Fetches jars from Maven Central with the Ivy that PySpark bundles.

So a machine with nothing but Python gets what runs on Java from two package registries, and no build tool.
"""

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tarry.errors import UsageError
from tarry.jars.java import Java

FETCH_WITHIN_S = 900.0

_MODULE = """\
<ivy-module version="2.0">
  <info organisation="tarry" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""


class Artefact(NamedTuple):
    """A jar of Maven Central.

    Attributes:
        organisation: whose.
        name: of it.
        version: of it.
        alone: without the jars that it needs.
    """

    organisation: str
    name: str
    version: str
    alone: bool = False

    @property
    def dependency(self) -> str:
        """As Ivy reads it."""
        given = {"org": self.organisation, "name": self.name, "rev": self.version}
        given["transitive"] = "false" if self.alone else "true"
        attributes = " ".join(f'{name}="{value}"' for name, value in given.items())
        return f"    <dependency {attributes}/>"


def fetch_jars(java: Java, into: Path, artefacts: Sequence[Artefact], what: str) -> None:
    """Put jars, and those that they need, into a directory.

    Args:
        java: that runs Ivy.
        into: the directory.
        artefacts: the jars.
        what: whose they are, for errors.

    Raises:
        UsageError: no Ivy, or it could not fetch: no network, or a proxy that this Java does not trust.
    """
    ivy = _ivy_jar()
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=into.parent) as scratch:
        module = Path(scratch, "ivy.xml")
        dependencies = "\n".join(artefact.dependency for artefact in artefacts)
        module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
        command = [
            str(java.path),
            *proxy_options(os.environ),
            # Ivy's own defaults would look for artefacts in, and write to, the user's home.
            f"-Divy.default.ivy.user.dir={scratch}/home",
            *("-jar", str(ivy), "-warn", "-ivy", str(module), "-cache", f"{scratch}/cache"),
            *("-retrieve", f"{into}/[artifact]-[revision].[ext]"),
        ]
        try:
            done = subprocess.run(  # noqa: S603 (our own arguments)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=FETCH_WITHIN_S,
                check=False,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(
                f"fetching the jars of {what} from Maven Central took more than {FETCH_WITHIN_S:.0f} s: try again"
            ) from error
    if done.returncode != 0:
        refusal = UsageError(
            f"the jars of {what} could not be fetched from Maven Central: {_reason(done.stdout, java)}"
        )
        refusal.add_note(done.stdout)
        raise refusal


def proxy_options(environ: Mapping[str, str]) -> Iterator[str]:
    """Java's options for what `https_proxy`, `http_proxy` and `no_proxy` say: Java reads none of them."""
    for scheme in ("https", "http"):
        name = f"{scheme}_proxy"
        if proxy := environ.get(name) or environ.get(name.upper()):
            address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            if address.hostname:
                yield f"-D{scheme}.proxyHost={address.hostname}"
                yield f"-D{scheme}.proxyPort={address.port or 80}"
    if spared := environ.get("no_proxy") or environ.get("NO_PROXY"):
        hosts = (host.strip() for host in spared.split(","))
        yield "-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host[0] == "." else host for host in hosts if host)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        if jars := sorted(Path(package, "jars").glob("ivy-*.jar")):
            return jars[-1]
    raise UsageError(
        "jars are fetched by the Ivy that PySpark bundles, and PySpark is not installed: "
        "`pip install 'tarry[pipelines]'`"
    )


def _reason(output: str, java: Java) -> str:
    if "PKIX" in output or "SSLHandshakeException" in output:
        return (
            f"{java.path} does not trust the certificate it was shown (a proxy that opens TLS?): "
            "set JAVA_HOME to a Java that does"
        )
    if any(sign in output for sign in ("UnknownHostException", "ConnectException", "unknown host", "timed out")):
        return "the network does not answer; check it, or set https_proxy"
    said = [line.strip() for line in output.splitlines() if line.strip(" :\t-")]
    return said[-1] if said else "Ivy did not say why"
