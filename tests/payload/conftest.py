"""The payload runs as flat files in one folder, so its tests import it that way."""

from __future__ import annotations

import sys
from pathlib import Path

PAYLOAD = Path(__file__).resolve().parents[2] / "remote_payload"
sys.path.insert(0, str(PAYLOAD))

import torch  # noqa: E402

torch.set_num_threads(1)
