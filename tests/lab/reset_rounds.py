"""200 resets over kept connections, beside a neighbour's processes, while process numbers are given away anew.

`reset_rounds.py LAB INVENTORY BASE RUN ROUNDS`, on the controller's side of a real lab. One JSON line at the end.
Each round has a stray on GPU 0 and a neighbour's process on the same GPU. Between plan and kill, three rounds of
four see the stray die and its number go to somebody else:
  0  nobody: the stray must die by the reset
  1  a stray of a dead run; its number on the host is then a neighbour's process
  2  a process of the container that no run started; likewise
  3  a stray of a dead run; its number in the container is then an innocent process there
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

from orchestrator.inventory.loader import load_inventory
from orchestrator.inventory.model import Target
from orchestrator.lab.real import RealLab
from orchestrator.lab.records import choose_lab
from orchestrator.lab.surface import FAR_ENVIRONMENT
from orchestrator.operations.reset import ResetRequest, reset_over
from orchestrator.operations.session import agent_sessions

# In a container: makes children that hold a GPU, under numbers that are asked for; ends and reaps them.
SPAWNER = """
import ctypes, json, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)

def clone(pids):
    if not pids:
        return os.fork()
    numbers = (ctypes.c_int * len(pids))(*pids)
    words = [0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(numbers), len(pids), 0]
    arguments = ctypes.create_string_buffer(struct.pack("11Q", *words))
    pid = libc.syscall(435, arguments, ctypes.c_size_t(88))
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return pid

def spawn(wanted):
    reading, writing = os.pipe()
    pid = clone(wanted.get("pids"))
    if pid == 0:
        os.setsid()
        if wanted.get("mib"):
            os.dup2(os.open("/dev/nvidia0", os.O_RDWR), 9, inheritable=True)
            os.lseek(9, wanted["mib"], os.SEEK_SET)
        os.write(writing, os.readlink(sys.argv[1] + "/driver-proc/self").encode())
        os.execve("/bin/sleep", ["sleep", "1000"], wanted.get("env", {}))
    os.close(writing)
    host_pid = int(os.read(reading, 32))
    os.read(reading, 1)  # its end: exec has worked
    os.close(reading)
    return {"pid": pid, "host_pid": host_pid}

for line in sys.stdin:
    wanted = json.loads(line)
    try:
        if "alive" in wanted:
            answer = {"alive": os.waitpid(wanted["alive"], os.WNOHANG)[0] == 0}
        elif "end" in wanted:
            os.kill(wanted["end"], 9)
            answer = {"status": os.waitpid(wanted["end"], 0)[1]}
        else:
            answer = spawn(wanted)
    except OSError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
"""


class Spawner:
    def __init__(self, lab: RealLab, container: int) -> None:
        program = [str(Path(sys.executable).resolve()), "-IS", "-c", SPAWNER, lab.shared_seen_at]
        self._process = subprocess.Popen(
            lab.far_command(program, container),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=FAR_ENVIRONMENT,
            cwd="/",
        )

    def ask(self, **wanted):
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, (wanted, answer)
        return answer

    def alive(self, process) -> bool:
        return self.ask(alive=process["pid"])["alive"]

    def end(self, process) -> None:
        self.ask(end=process["pid"])

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


class Rounds:
    def __init__(self, lab: RealLab, target: Target, run_folder: str) -> None:
        self.mine, self.beside = Spawner(lab, 200), Spawner(lab, 201)
        self.target = target
        self.of_run = {"ORCH_RUN_DIR": run_folder}
        self.numbers = itertools.count(20_000)
        self.reused = 0
        self.signalled = 0

    async def one(self, session, host, kind: int) -> None:
        stray = self.mine.ask(env={} if kind == 2 else self.of_run, mib=700)
        neighbour = self.beside.ask(env=self.of_run, mib=5000)
        heirs = []

        async def give_its_number_away(plan) -> bool:
            chosen = {row.host_pid for row in plan.kill.killed}
            assert stray["host_pid"] in chosen and neighbour["host_pid"] not in chosen, plan
            if kind:
                self.mine.end(stray)
                heir = self.heir(kind, stray)
                assert heir["pid" if kind == 3 else "host_pid"] == stray["pid" if kind == 3 else "host_pid"]
                heirs.append((self.mine if kind == 3 else self.beside, heir))
                self.reused += 1
            return True

        report = await reset_over(session, host, self.target, ResetRequest(True, False), confirm=give_its_number_away)
        assert report.as_wanted, report.found
        if not kind:
            assert not self.mine.alive(stray), "the stray lives"
            self.signalled += 1
        for spawner, process in [(self.beside, neighbour), *heirs]:
            assert spawner.alive(process), f"round of kind {kind}: {process} is gone: {report.killed}"
            spawner.end(process)

    def heir(self, kind: int, stray):
        if kind == 3:
            return self.mine.ask(pids=[stray["pid"]])
        return self.beside.ask(pids=[next(self.numbers), stray["host_pid"]], mib=300)

    def close(self) -> None:
        self.mine.close()
        self.beside.close()


async def main() -> None:
    lab_id, inventory, base, run_id, rounds = sys.argv[1:]
    target = next(iter(load_inventory(Path(inventory)).targets.values()))
    work = Rounds(RealLab(choose_lab(lab_id)), target, f"{base}/runs/{run_id}")
    began = time.monotonic()
    async with agent_sessions(target, None) as (session, host, note):
        assert host is not None, note
        for number in range(int(rounds)):
            await work.one(session, host, number % 4)
    work.close()
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"resets": int(rounds), "reused": work.reused, "killed": work.signalled, "seconds": seconds}))


if __name__ == "__main__":
    asyncio.run(main())
