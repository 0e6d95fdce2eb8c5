"""The profile of ONNX Runtime's sessions that a user's own step has opened.

A session profiles from its making to its end or not at all. So each session of the file is opened
once more with profiling, and takes the place of the first one within its object for the profiled
steps.
"""

import gc
import glob
import json
import os
import tempfile
from typing import Any, List, Optional

import onnxruntime

from ..base import Adapter
from ..libraries import profiles
from ..libraries.profiles import Calls
from ..protocol import Profile


def take_profile(adapter: Adapter, steps: int) -> Optional[Profile]:
    """Run this many steps with sessions that profile.

    Return None where the file has opened none.
    """
    sessions = []
    for candidate in gc.get_objects():
        if isinstance(candidate, onnxruntime.InferenceSession):
            sessions.append(candidate)
    if not sessions:
        return None
    inner_sessions = [session._sess for session in sessions]
    with tempfile.TemporaryDirectory(
        prefix="onnxruntime-", dir=adapter.cache_directory
    ) as directory:
        try:
            for number, session in enumerate(sessions):
                session._sess = _profiling(session, os.path.join(directory, str(number)))
            profiles.run(adapter.step, adapter.synchronize, profiles.WARMUP)
            seconds = profiles.run(adapter.step, adapter.synchronize, steps)
            for session in sessions:
                session.end_profiling()
        finally:
            for session, inner in zip(sessions, inner_sessions):
                session._sess = inner
        calls: List[Calls] = []
        for path in glob.glob(os.path.join(directory, "*.json")):
            with open(path, encoding="utf-8") as file:
                events = json.load(file)
            runs = sum(event.get("name") == "model_run" for event in events)
            # A step may run a session several times.
            skipped = runs * profiles.WARMUP // (profiles.WARMUP + steps)
            calls += profiles.onnx_calls(events, skipped)
    return profiles.profile(profiles.ONNX_PROFILER, steps, seconds, calls)


def _profiling(session: Any, prefix: str) -> Any:
    """Return the inner session of a further session, which profiles.

    It has the same model and options.
    """
    options = session._sess_options or onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = prefix
    try:
        model = session._model_bytes or session._model_path
        return onnxruntime.InferenceSession(model, options, session.get_providers())._sess
    finally:
        options.enable_profiling = False
