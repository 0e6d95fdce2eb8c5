"""Facts that an imported framework shows of its build: libraries, models, names, distribution.

Asked with the capabilities, in a process that times nothing; the same questions for every
framework.
"""

import glob
import importlib.util
import os
import re
import sys
from email.parser import HeaderParser
from typing import Any, Dict, List, Optional, Tuple

from ..launch.evidence import read_file

Answers = Dict[str, Tuple[bool, str]]

#: Where frameworks keep their pretrained models. {} is the framework's module.
_MODELS = (
    "{}.applications",
    "{}.gluon.model_zoo",
    "{}.vision.models",
    "{}.links.model.vision",
    "keras.applications",
)
_MODELS_OF_TORCH = "torchvision.models"
_VERSION = re.compile(r"[0-9.]+$|Only$|Implementation|CPython$")
_BOLTZMANN = re.compile(r"boltzmann|deep_?belief|(^|_)rbm($|_)|^[A-Za-z]*RBM$|^DBN$", re.IGNORECASE)


def answers(module: str) -> Answers:
    """Return the capabilities that the framework with this module shows, each with its evidence."""
    names = boltzmann_names(module)
    return {
        "openmp": _loaded(r"lib(gomp|iomp5|omp)\b", "OpenMP"),
        "opencl": _loaded(r"libOpenCL\b", "OpenCL"),
        "pretrained_models": _pretrained_models(module),
        "boltzmann_machines": (
            bool(names),
            ", ".join(names[:3]) or "no name in its modules says so",
        ),
    }


def _pretrained_models(module: str) -> Tuple[bool, str]:
    models = list(dict.fromkeys(model.format(module) for model in _MODELS))
    if module == "torch":
        models.append(_MODELS_OF_TORCH)
    for model in models:
        if _can_be_found(model):
            return True, "%s is there" % model
    return False, "none of %s" % ", ".join(models)


def _read(path: str) -> str:
    return read_file(path) or ""


def _loaded(pattern: str, title: str) -> Tuple[bool, str]:
    """Return whether this process has loaded a library of such a name."""
    paths = re.findall(r"(/\S+)$", _read("/proc/self/maps"), re.MULTILINE)
    libraries = {os.path.basename(path) for path in paths}
    names = sorted(library for library in libraries if re.match(pattern, library))
    if not names:
        return False, "no library of %s is loaded" % title
    return True, "loaded: " + ", ".join(names[:3])


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # its package is missing, is no package, or cannot be imported
        return False


def boltzmann_names(module: str) -> List[str]:
    """Return the names of Boltzmann machines and deep belief networks in the framework's modules.

    Only modules that are loaded are searched.
    """
    names = set()
    for module_name, loaded in list(sys.modules.items()):
        if module_name == module or module_name.startswith(module + "."):
            for attribute in getattr(loaded, "__dict__", ()):
                if _BOLTZMANN.search(attribute):
                    names.add("%s.%s" % (module_name, attribute))
    return sorted(names)


def distribution_of(module: str) -> Optional[str]:
    """Return the metadata folder of the distribution that installed the module, or None."""
    for directory in sys.path:
        for folder in glob.glob(os.path.join(glob.escape(directory or "."), "*.*-info")):
            listed = _read(os.path.join(folder, "RECORD"))
            holds = re.search(r"^%s(/__init__)?\.py," % re.escape(module), listed, re.MULTILINE)
            if holds or module in _read(os.path.join(folder, "top_level.txt")).split():
                return folder
    return None


def project(module: str) -> Dict[str, str]:
    """Return the creator, licence, platform and languages in the distribution's metadata.

    Facts that the metadata lack are left out.
    """
    folder = distribution_of(module)
    if folder is None:
        return {}
    metadata = _read(os.path.join(folder, "METADATA")) or _read(os.path.join(folder, "PKG-INFO"))
    about: Any = HeaderParser().parsestr(metadata)
    listed = _read(os.path.join(folder, "RECORD")).splitlines()
    wheel: Any = HeaderParser().parsestr(_read(os.path.join(folder, "WHEEL")))
    libraries = sum(1 for line in listed if re.search(r"\.so(\.[0-9.]+)?,", line))
    licence = (
        str(about["License-Expression"] or "")
        or _classifiers(about, "License")
        or str(about["License"] or "")
    )
    tags = [str(tag).rpartition("-")[2] for tag in wheel.get_all("Tag") or []]
    platforms = ", ".join(dict.fromkeys(tags))
    facts = {
        "distribution": "%s %s" % (about["Name"], about["Version"]),
        "creator": str(about["Author"] or about["Author-email"] or about["Maintainer"] or ""),
        "licence": licence,
        "platform": _classifiers(about, "Operating System") or platforms,
        "languages": _classifiers(about, "Programming Language"),
        "libraries": "%d shared libraries" % libraries if libraries else "",
    }
    return {key: " ".join(text.split())[:120] for key, text in facts.items() if text}


def _classifiers(about: Any, kind: str) -> str:
    """Return the last parts of the classifiers of this kind, without versions."""
    parts = []
    for classifier in about.get_all("Classifier") or []:
        part = str(classifier).rpartition(":: ")[2]
        if str(classifier).startswith(kind + " ::") and not _VERSION.match(part):
            parts.append(part)
    return ", ".join(dict.fromkeys(parts))
