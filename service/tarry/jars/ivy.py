"""Downloads jars from Maven Central with the Ivy that PySpark bundles.

So a machine that has only Python needs no build tool for Java: PyPI and Maven Central are enough.
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
    """A jar on Maven Central.

    Attributes:
        organisation: its group id.
        name: its artefact id.
        version: its version.
        alone: whether to leave out the jars that it depends on.
    """

    organisation: str
    name: str
    version: str
    alone: bool = False

    @property
    def dependency(self) -> str:
        """The dependency as an element of Ivy's XML."""
        given = {"org": self.organisation, "name": self.name, "rev": self.version}
        given["transitive"] = "false" if self.alone else "true"
        attributes = " ".join(f'{name}="{value}"' for name, value in given.items())
        return f"    <dependency {attributes}/>"


def fetch_jars(java: Java, into: Path, artefacts: Sequence[Artefact], what: str) -> None:
    """Download jars and their dependencies into a directory.

    Args:
        java: the Java that runs Ivy.
        into: the directory.
        artefacts: the jars.
        what: a description of the jars, for errors.

    Raises:
        UsageError: Ivy is not installed, or could not download the jars: for example, there is no network, or this Java
            does not trust the certificate of a proxy.
    """
    ivy = _ivy_jar()
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=into.parent) as scratch:
        module = Path(scratch, "ivy.xml")
        dependencies = "\n".join(artefact.dependency for artefact in artefacts)
        module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
        command = [
            str(java.path),
            *proxy_options(os.environ),
            # By default, Ivy would search for artefacts in the user's home directory and write to it.
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
                f"the download of {what} from Maven Central took more than {FETCH_WITHIN_S:.0f} s: try again"
            ) from error
    if done.returncode != 0:
        refusal = UsageError(f"the download of {what} from Maven Central failed: {_reason(done.stdout, java)}")
        refusal.add_note(done.stdout)
        raise refusal


def proxy_options(environ: Mapping[str, str]) -> Iterator[str]:
    """Return Java options for the variables `https_proxy`, `http_proxy` and `no_proxy`, which Java itself ignores."""
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
        "jars are downloaded with the Ivy that PySpark bundles, but PySpark is not installed: "
        "run `pip install 'tarry[broker]'`"
    )


def _reason(output: str, java: Java) -> str:
    if "PKIX" in output or "SSLHandshakeException" in output:
        return (
            f"{java.path} does not trust the server's certificate (perhaps from a proxy that intercepts TLS): "
            "set JAVA_HOME to a Java that trusts it"
        )
    if any(sign in output for sign in ("UnknownHostException", "ConnectException", "unknown host", "timed out")):
        return "no connection: check the network, or set https_proxy"
    said = [line.strip() for line in output.splitlines() if line.strip(" :\t-")]
    return said[-1] if said else "Ivy gave no reason"
