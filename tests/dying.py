"""Work that is cut short at each change that it makes to the disk."""

import os

CHANGES = ("rename", "replace", "mkdir", "makedirs", "unlink", "rmdir", "fsync", "symlink", "link")


def die_at(step, work):
    """Run work in a child that is gone at its step-th change to the disk. True: it died, False: it got through."""
    return _in_a_child(step, work)[0]


def count_changes(work):
    """How many there are: it is done for that."""
    return _in_a_child(1 << 30, work)[1]


def _in_a_child(step, work):
    """(whether it died, how many changes it made)"""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        made = [0]

        def counted(call):
            def change(*words, **named):
                if made[0] == step:
                    os._exit(9)
                made[0] += 1
                return call(*words, **named)

            return change

        for name in CHANGES:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        except BaseException:
            os._exit(1)
        os.write(writing, b"%d" % made[0])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        made = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), "it failed otherwise"
    return code == 9, int(made) if made else None
