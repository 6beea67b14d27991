"""Which processes a reset ends: whatever host and target tell, never a neighbour's, never one it cannot name."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.far.membership import Membership, belongs, container_of, parse_ns_pids
from orchestrator.probes.gpu_processes import (
    ComputeApp,
    GpuMemory,
    HostProcess,
    judge_memory,
    parse_apps,
    parse_holders,
    parse_memory,
)
from orchestrator.probes.kill_plan import RunProcess, RunToEnd, parse_leftovers, plan_kill

UUID = "GPU-5a4e8f00-1b2c-4d3e-8f90-0123456789ab"

pids = st.integers(1, 60)
ticks = st.integers(0, 8)
containers = st.sampled_from([None, 200, 201])
processes = st.builds(
    HostProcess,
    pid=pids,
    start_ticks=ticks,
    state=st.sampled_from("RSDZ"),
    command=st.sampled_from(["python train.py", "nvidia-smi -l 1", "", "/usr/bin/nvidia-smi"]),
    devices=st.sampled_from([(), ("nvidia0",), ("nvidia-uvm", "nvidia1")]),
    container=containers,
    ns_pids=st.lists(pids, max_size=3).map(tuple),
)
apps = st.builds(ComputeApp, gpu_uuid=st.just(UUID), pid=pids, used_mib=st.none() | st.integers(0, 9000))
run_processes = st.builds(
    RunProcess, pid=pids, start_ticks=ticks, state=st.just("S"), command=st.just("python"), why=st.just("")
)
runs = st.builds(
    RunToEnd, run_id=st.sampled_from(["a", "b"]), live=st.booleans(), processes=st.lists(run_processes).map(tuple)
)


def host(pid=10, ticks=5, container=200, inside=4, devices=("nvidia0",), command="python train.py"):
    return HostProcess(pid, ticks, "S", command, devices, container, (pid, inside) if inside else (pid,))


@given(containers, st.lists(runs), st.lists(processes), st.lists(apps))
def test_the_host_ends_only_what_is_inside_this_container(container, runs, found, apps):
    plan = plan_kill(container, runs, found, apps)
    for process in plan.host_processes:
        assert container is not None and process.container == container
        assert len(process.ns_pids) >= 2 and process.ns_pids[1] != 1
        assert process in found
    assert plan.runs == tuple(runs)


@given(st.lists(runs), st.lists(processes), st.lists(apps))
def test_everything_seen_is_either_ended_or_shown_with_its_reason(runs, found, apps):
    plan = plan_kill(200, runs, found, apps)
    shown = {row.host_pid for row in (*plan.killed, *plan.spared)}
    assert {process.pid for process in found} | {app.pid for app in apps} <= shown
    assert all(row.reason for row in (*plan.killed, *plan.spared))
    assert sum(len(run.processes) for run in runs) + len(plan.host_processes) == len(plan.killed)


@given(st.lists(runs), st.lists(processes), st.lists(apps))
def test_on_a_host_without_containers_only_runs_are_ended(runs, found, apps):
    assert plan_kill(None, runs, found, apps).host_processes == ()


def test_a_process_of_a_run_is_listed_once_and_joined_by_number_and_start():
    run = RunToEnd("r", False, (RunProcess(4, 5, "S", "python train.py", "carries its folder"),))
    plan = plan_kill(200, [run], [host()], [])
    assert plan.host_processes == () and plan.killed[0].host_pid == 10 and plan.killed[0].devices == ("nvidia0",)
    other = plan_kill(200, [run], [host(ticks=6)], [])
    assert [process.pid for process in other.host_processes] == [10] and other.killed[0].host_pid is None


def test_reasons():
    rows = [
        host(1, inside=2),
        host(2, container=201),
        host(3, container=None),
        host(4, inside=None),
        host(5, inside=1),
        host(6, inside=3, command="nvidia-smi -l 1"),
    ]
    plan = plan_kill(200, [], rows, [ComputeApp(UUID, 99, 10)])
    assert [process.pid for process in plan.host_processes] == [1]
    assert [(row.host_pid, row.reason.split(",")[0].split(":")[0]) for row in plan.spared] == [
        (2, "container 201's"),
        (3, "the host's own"),
        (4, "not inside the container"),
        (5, "the container's first process"),
        (6, "only looks at the GPUs"),
        (99, "nvidia-smi lists it"),
    ]
    using = plan_kill(200, [], [rows[5]], [ComputeApp(UUID, 6, 10)])
    assert [process.pid for process in using.host_processes] == [6], "it uses memory, whatever it is called"


def test_the_live_run_comes_first_even_without_a_process():
    told = {"live_run": "b", "runs": [{"run_id": "a", "processes": [{"pid": 3, "start_ticks": 4, "argv": ["x"]}]}]}
    found = parse_leftovers(told, step=7)
    assert [(run.run_id, run.live, run.step, len(run.processes)) for run in found] == [
        ("b", True, 7, 0),
        ("a", False, None, 1),
    ]


@given(st.lists(st.sampled_from(["/lxc/200/ns", "/lxc/201", "/", "/lxc.payload.200", "/user.slice", "/x/lxc/200"])))
def test_a_container_is_named_by_every_path_or_by_none(paths):
    named = {201 if "201" in path else 200 for path in paths if path.startswith("/lxc")}
    assert container_of(paths) == (named.pop() if len(named) == 1 else None)


def test_where_a_process_belongs():
    assert container_of(["/lxc/200/ns/.lxc"]) == 200
    assert container_of(["/lxc/300/ns/lxc/200/x"]) == 300, "of the outer container"
    assert container_of(["/lxc.monitor/200"]) is container_of(["/lxc.monitor.200"]) is container_of([]) is None
    assert container_of(["/lxc/2000"]) == 2000 and container_of(["/lxc/200x/y"]) is None
    assert parse_ns_pids("Name:\tx\nNSpid:\t815\t12\n") == [815, 12] and parse_ns_pids("Name:\tx\n") == []


@given(containers, st.lists(pids, max_size=3), st.sampled_from([200, 201]), st.lists(pids, max_size=3))
def test_belonging_is_being_the_same_in_everything(container, numbers, wanted, planned):
    same = belongs(Membership(container, numbers), wanted, planned)
    assert same == (container == wanted and numbers == planned and len(planned) >= 2)


# Is the memory free?


def verdict(used, apps, holders=(), container=200):
    return judge_memory([GpuMemory(0, UUID, used)], apps, holders, container)[0]


def test_memory_is_free_only_when_it_is_explained():
    assert verdict(0, []).free is True
    assert verdict(5000, [ComputeApp(UUID, 2, 5000)], [host(2, container=201)]).free is True
    ours = verdict(5700, [ComputeApp(UUID, 2, 5000), ComputeApp(UUID, 10, 700)], [host(2, container=201), host()])
    assert ours.free is False and "pid 10" in ours.why
    assert verdict(0, [], [host()]).free is False, "it is held, although nvidia-smi shows no memory"
    assert verdict(5000, []).free is False and "no process" in verdict(5000, []).why
    assert "does not exist" in verdict(5000, [ComputeApp(UUID, 77, 100)]).why


def test_what_is_not_known_is_not_free():
    assert verdict(None, []).free is None
    assert verdict(5000, None).free is None
    assert verdict(5000, [ComputeApp(UUID, 2, None)], [host(2, container=201)]).free is None
    assert verdict(5000, [], [host(2, container=201)]).free is None, "the list hides what holds the device"


@given(st.none() | st.integers(0, 200_000), st.none() | st.lists(apps), st.lists(processes))
def test_free_means_that_nobody_of_ours_holds_it_and_all_is_explained(used, apps, found):
    answer = verdict(used, apps, found)
    if answer.free:
        assert used is not None and used - sum(app.used_mib or 0 for app in apps or []) <= 64
        assert not [app for app in apps or [] if any(p.pid == app.pid and p.container == 200 for p in found)] or len(
            {p.pid for p in found}
        ) < len(found)


@given(st.text())
def test_parsers_never_raise(text):
    parse_apps(text), parse_memory(text)
    parse_holders({"processes": [text, {"pid": text}]})


def test_real_rows():
    assert parse_memory(f"0, {UUID}, 12\n1, {UUID}, [N/A]\nNo devices were found\n") == (
        GpuMemory(0, UUID, 12),
        GpuMemory(1, UUID, None),
    )
    assert parse_apps(f"{UUID}, 815, a, b, 900\n{UUID}, 816, [Not Found], [N/A]\nbad row\n") == (
        ComputeApp(UUID, 815, 900),
        ComputeApp(UUID, 816, None),
    )
