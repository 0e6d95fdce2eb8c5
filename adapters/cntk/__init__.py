"""The Microsoft Cognitive Toolkit."""

import warnings

# At import it warns of every Linux but Ubuntu 16.04, and of the GPU's libraries, which its CPU build never loads.
warnings.filterwarnings("ignore", module=r"cntk\.")
