"""Process 1 of a container in the lab: reaps children, ends on TERM, INT or PWR. The kernel then ends the rest."""

import os
import signal

ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGPWR}


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def main() -> None:
    awaited = ENDS | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    reap()
    while signal.sigwait(awaited) not in ENDS:
        reap()


if __name__ == "__main__":
    main()
