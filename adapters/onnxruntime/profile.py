"""The operators of some steps, as the profiles that ONNX Runtime writes tell them.

A step is a run of the training session and one of the optimizer session; each writes a profile of its own when it ends.
"""

import glob
import os
import tempfile
from typing import Any, Callable, Optional

from ..base import Adapter
from ..libraries import profiles
from ..onnx.profile import WARMUP, calls, joined, read
from ..protocol import Profile


def take(
    adapter: Adapter, open_sessions: Callable[[Any], None], close_sessions: Callable[[], None], options: Any, steps: int
) -> Optional[Profile]:
    """Run so many steps in sessions made with these options.

    ``open_sessions`` makes them the adapter's, ``close_sessions`` lets them go, which is when they write.
    """
    with tempfile.TemporaryDirectory(prefix="onnxruntime-", dir=adapter.cache_directory) as directory:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(directory, "profile")
        open_sessions(options)
        profiles.run(adapter.step, adapter.synchronize, WARMUP)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        close_sessions()
        found = [each for path in glob.glob(os.path.join(directory, "*.json")) for each in calls(read(path), WARMUP)]
    return joined(adapter, steps, seconds, found)
