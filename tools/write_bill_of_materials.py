"""Writes bill_of_materials.cdx.json, imp's components and dependencies in CycloneDX; --check compares the file.

It lists the requirements in pyproject.toml with their version ranges, and the libraries that the extension links;
--with-cuda prints the bill of a build with CUDA code, --client that of imp-client. --installed prints the bill of this
environment instead: exact versions, and their own dependencies. Any scanner that reads CycloneDX accepts these files:
for example `osv-scanner --sbom FILE`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "bill_of_materials.cdx.json"
PACKAGE = ROOT / "service" / "imp_service"
CLIENT = ROOT / "clients" / "python"
MODELS = PACKAGE / "models"
# Extras that a deployment may install; the others are tools of developers.
DEPLOYED_EXTRAS = ("otel", "ray")
# Licenses as SPDX expressions, read by a person. The tool fails for a dependency that is not listed.
LICENCES = {
    "aiohttp": "Apache-2.0",
    "googleapis-common-protos": "Apache-2.0",
    "grpcio": "Apache-2.0",
    "grpcio-channelz": "Apache-2.0",
    "grpcio-health-checking": "Apache-2.0",
    "grpcio-reflection": "Apache-2.0",
    "grpcio-status": "Apache-2.0",
    "huggingface-hub": "Apache-2.0",
    "jinja2": "BSD-3-Clause",
    "llguidance": "MIT",
    "numpy": "BSD-3-Clause",
    "opentelemetry-exporter-otlp-proto-grpc": "Apache-2.0",
    "opentelemetry-sdk": "Apache-2.0",
    "pillow": "MIT-CMU",
    "prometheus-client": "Apache-2.0",
    "prompt-toolkit": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "pybind11": "BSD-3-Clause",
    "pyyaml": "MIT",
    "ray": "Apache-2.0",
    "rich": "MIT",
    "shtab": "MPL-2.0",
    "tokenizers": "Apache-2.0",
}
# Libraries that the extension links dynamically: the machine's own, of any version.
LINKED = {"glibc": "LGPL-2.1-or-later", "libgcc": "GPL-3.0-or-later WITH GCC-exception-3.1"}
LINKED["libstdc++"] = LINKED["libgcc"]
CUDA_LICENCE = "https://docs.nvidia.com/cuda/eula/"

Component = dict[str, Any]


def project(folder: Path = ROOT) -> dict[str, Any]:
    """Returns the tables of pyproject.toml."""
    return tomllib.loads((folder / "pyproject.toml").read_text())


def version() -> str:
    """Returns the version of imp, from the one place that states it."""
    (found,) = re.findall(r'^__version__ = "(.+)"$', (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    return str(found)


def canonical(name: str) -> str:
    """Returns a package name in the normalized form of package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package(requirement: Requirement, scope: str, role: str) -> Component:
    """Returns the component of a required Python package; `role` says what imp uses it for."""
    name = canonical(requirement.name)
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "scope": scope,
        "licenses": [{"expression": LICENCES[name]}],
        "purl": f"pkg:pypi/{name}",
        "properties": [
            {"name": "imp:role", "value": role},
            {"name": "imp:requirement", "value": str(requirement.specifier)},
        ],
    }


def declared(*, with_cuda: bool = False) -> Iterator[Component]:
    """Yields the dependencies of pyproject.toml and of the build."""
    tables = project()
    for text in tables["project"]["dependencies"]:
        yield package(Requirement(text), "required", "run with")
    for extra in DEPLOYED_EXTRAS:
        for text in tables["project"]["optional-dependencies"][extra]:
            yield package(Requirement(text), "optional", f"extra {extra}")
    compiled = {Requirement(text).name: Requirement(text) for text in tables["build-system"]["requires"]}
    yield package(compiled["pybind11"], "required", "compiled into the extension")
    for name, licence in LINKED.items():
        yield {
            "type": "library",
            "bom-ref": f"linked:{name}",
            "name": name,
            "scope": "required",
            "licenses": [{"expression": licence}],
            "properties": [{"name": "imp:role", "value": "linked by the extension"}],
        }
    if with_cuda:
        yield {
            "type": "library",
            "bom-ref": "contained:cudart",
            "name": "cudart",
            "scope": "required",
            "licenses": [{"license": {"name": "NVIDIA Software License Agreement", "url": CUDA_LICENCE}}],
            "properties": [{"name": "imp:role", "value": "contained in the extension"}],
        }
    for path in sorted(MODELS.glob("*.gguf")):
        yield {
            "type": "machine-learning-model",
            "bom-ref": f"model:{path.name}",
            "name": path.name,
            "scope": "required",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
            "properties": [{"name": "imp:role", "value": "contained"}],
        }


def declared_by_client() -> Iterator[Component]:
    """Yields the dependencies of imp-client."""
    for text in project(CLIENT)["project"]["dependencies"]:
        yield package(Requirement(text), "required", "run with")


def installed() -> Iterator[Component]:
    """Yields the installed versions of these dependencies and of their own dependencies."""
    pending = [Requirement(text) for text in project()["project"]["dependencies"]]
    seen: set[str] = set()
    while pending:
        requirement = pending.pop()
        name = canonical(requirement.name)
        if name in seen or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        licence = found.metadata.get("License-Expression") or LICENCES.get(name)
        yield {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{found.version}",
            "name": name,
            "version": found.version,
            "scope": "required",
            "licenses": [{"expression": licence}] if licence else [],
            "purl": f"pkg:pypi/{name}@{found.version}",
        }
        pending += [Requirement(text) for text in found.requires or ()]


def bill(components: Iterator[Component], folder: Path = ROOT) -> str:
    """Returns the document, without a time or serial number, so that it changes only with its content.

    `folder` has the pyproject.toml of the distribution.
    """
    facts = project(folder)["project"]
    merged = {component["bom-ref"]: component for component in components}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": facts["name"],
                "name": facts["name"],
                "version": version(),
                "licenses": [{"expression": facts["license"]}],
            }
        },
        "components": [merged[ref] for ref in sorted(merged)],
        "dependencies": [{"ref": facts["name"], "dependsOn": sorted(merged)}],
    }
    return json.dumps(document, indent=2) + "\n"


def main() -> int:
    """Writes, checks or prints the bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where the file is out of date")
    parser.add_argument("--installed", action="store_true", help="print the bill of this environment")
    parser.add_argument("--print", action="store_true", dest="prints", help="print the bill of these sources")
    parser.add_argument("--with-cuda", action="store_true", help="print that of a build with CUDA code")
    parser.add_argument("--client", action="store_true", help="print that of imp-client")
    arguments = parser.parse_args()
    if arguments.installed:
        print(bill(installed()), end="")
        return 0
    if arguments.client:
        print(bill(declared_by_client(), CLIENT), end="")
        return 0
    if arguments.prints or arguments.with_cuda:
        print(bill(declared(with_cuda=arguments.with_cuda)), end="")
        return 0
    text = bill(declared())
    if arguments.check:
        is_fresh = TARGET.exists() and TARGET.read_text() == text
        print(f"{TARGET.name} is {'up to date' if is_fresh else 'out of date: run tools/write_bill_of_materials.py'}")
        return 0 if is_fresh else 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
