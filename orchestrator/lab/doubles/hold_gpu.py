"""Uses GPUs of the lab as a training does: holds their files open. Standard library only.

`hold_gpu.py [--deaf] [--until-eof] GPU=MIB ...` says `<pid on the host> <own pid>` once it holds them all.
Rule: it never gives one up before it ends.
"""

from __future__ import annotations

import os
import signal
import sys

LAB = os.path.dirname(os.path.abspath(__file__))


def open_device(name: str) -> int:
    """By its name in /dev where the lab's file is there: whoever looks at the descriptor sees a GPU."""
    own, usual = os.path.join(LAB, "gpus", name), os.path.join("/dev", name)
    try:
        return os.open(usual if os.path.samefile(own, usual) else own, os.O_RDWR)
    except FileNotFoundError:
        return os.open(own, os.O_RDWR)


def host_pid() -> int:
    return int(os.readlink(os.path.join(driver_proc(), "self")))


def driver_proc() -> str:
    """The host's /proc: in a container it is shown here."""
    folder = os.path.join(LAB, "driver-proc")
    return folder if os.path.lexists(folder + "/self") else "/proc"


def main() -> int:
    words = sys.argv[1:]
    if "--deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for device in ("nvidiactl", "nvidia-uvm"):
        open_device(device)
    for word in words:
        if not word.startswith("--"):
            gpu, mib = word.split("=")
            os.lseek(open_device("nvidia" + gpu), int(mib), os.SEEK_SET)
    print(host_pid(), os.getpid(), flush=True)
    if "--until-eof" in words:
        while os.read(0, 4096):
            pass
        return 0
    while True:
        signal.pause()


if __name__ == "__main__":
    raise SystemExit(main())
