"""What a build of a framework shows of itself once it is imported: libraries, models, names, and
its distribution.

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

#: Where frameworks keep their pretrained models; {} is the framework's module.
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
    """Return what can be seen of the framework whose module has this name, each with how it was
    found out.
    """
    models = list(dict.fromkeys(each.format(module) for each in _MODELS))
    models += [_MODELS_OF_TORCH] if module == "torch" else []
    found = [each for each in models if _there(each)]
    named = boltzmann_names(module)
    return {
        "openmp": _loaded(r"lib(gomp|iomp5|omp)\b", "OpenMP"),
        "opencl": _loaded(r"libOpenCL\b", "OpenCL"),
        "pretrained_models": (
            bool(found),
            "%s is there" % found[0] if found else "none of %s" % ", ".join(models),
        ),
        "boltzmann_machines": (
            bool(named),
            ", ".join(named[:3]) or "no name in its modules says so",
        ),
    }


def _read(path: str) -> str:
    return read_file(path) or ""


def _loaded(pattern: str, what: str) -> Tuple[bool, str]:
    """Return whether this process has loaded a library of such a name."""
    paths = re.findall(r"(/\S+)$", _read("/proc/self/maps"), re.MULTILINE)
    names = sorted(
        {os.path.basename(path) for path in paths if re.match(pattern, os.path.basename(path))}
    )
    return bool(names), "loaded: " + ", ".join(
        names[:3]
    ) if names else "no library of %s is loaded" % what


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # its package is missing, is no package, or cannot be imported
        return False


def boltzmann_names(module: str) -> List[str]:
    """Return the names in the framework's loaded modules that speak of Boltzmann machines or deep
    belief networks.
    """
    found = set()
    for name, loaded in list(sys.modules.items()):
        if name == module or name.startswith(module + "."):
            found |= {
                "%s.%s" % (name, each)
                for each in getattr(loaded, "__dict__", ())
                if _BOLTZMANN.search(each)
            }
    return sorted(found)


def distribution_of(module: str) -> Optional[str]:
    """Return the metadata folder of the distribution that installed the module; None if it has
    none.
    """
    for directory in sys.path:
        for folder in glob.glob(os.path.join(glob.escape(directory or "."), "*.*-info")):
            listed = _read(os.path.join(folder, "RECORD"))
            holds = re.search(r"^%s(/__init__)?\.py," % re.escape(module), listed, re.MULTILINE)
            if holds or module in _read(os.path.join(folder, "top_level.txt")).split():
                return folder
    return None


def project(module: str) -> Dict[str, str]:
    """Return what the distribution's metadata say of creator, licence, platform and languages,
    where they do.
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
        or _classified(about, "License")
        or str(about["License"] or "")
    )
    found = {
        "distribution": "%s %s" % (about["Name"], about["Version"]),
        "creator": str(about["Author"] or about["Author-email"] or about["Maintainer"] or ""),
        "licence": licence,
        "platform": _classified(about, "Operating System") or _tags(wheel),
        "languages": _classified(about, "Programming Language"),
        "libraries": "%d shared libraries" % libraries if libraries else "",
    }
    return {key: " ".join(text.split())[:120] for key, text in found.items() if text}


def _classified(about: Any, kind: str) -> str:
    """Return what the classifiers of this kind say, each by its last part, without versions."""
    lines = [
        str(each)
        for each in about.get_all("Classifier") or []
        if str(each).startswith(kind + " ::")
    ]
    said = [line.rpartition(":: ")[2] for line in lines]
    return ", ".join(dict.fromkeys(each for each in said if not _VERSION.match(each)))


def _tags(wheel: Any) -> str:
    return ", ".join(
        dict.fromkeys(str(tag).rpartition("-")[2] for tag in wheel.get_all("Tag") or [])
    )
