"""Failures of NCCL, of torch's process groups, and of its launcher."""

from __future__ import annotations

from orchestrator.probes.failures.signature import Signature, signature

_RANK = r"\[(?:PG .{0,80} )?rank (?P<rank>\d{1,6})\]"
SIGNATURES: tuple[Signature, ...] = (
    signature(
        "nccl_timeout",
        "collective operation timeout|before timing out|watchdog timeout|timed out after|collective operation time",
        r"watchdog caught collective operation timeout"
        r"|WorkNCCL\(.{0,300}ran for \d{1,12} milliseconds before timing out"
        r"|collective operation timeout: WorkNCCL|Timed out waiting \d{1,12}ms for \w{1,30} operation to complete",
        _RANK,
        r"SeqNum=(?P<seq>\d{1,12})[,)]",
        r"OpType=(?P<op>\w{1,40})[,)]",
        r"Timeout\(ms\)=(?P<limit_ms>\d{1,12})[,)]",
        r"ran for (?P<ran_ms>\d{1,12}) milliseconds",
        r"NumelIn=(?P<numel_in>\d{1,15})",
    ),
    signature(
        "nccl_timeout",
        "detected by watchdog at work|timeout at nccl work",
        r"(?:exception \(either an error or timeout\)"
        r"|failure) detected by watchdog at work(?: sequence id)?: (?P<seq>\d{1,12})"
        r"|\btimeout at nccl work: (?P<seq2>\d{1,12})",
        r"PG ID (?P<pg_id>\d{1,6}) PG GUID (?P<pg_guid>.{1,60}?) Rank (?P<rank>\d{1,6})\]",
        r"\[PG \d{1,6} (?:\(\w{1,40}\) )?Rank (?P<rank>\d{1,6})\]",
        r"last enqueued (?:NCCL )?work: (?P<enqueued>\d{1,12})",
        r"last completed (?:NCCL )?work: (?P<completed>\d{1,12})",
    ),
    signature(
        "nccl_timeout",
        "monitoredbarrier|didn't join collective|dump signal due to a collective timeout",
        r"Rank (?P<missing_rank>\d{1,6}) failed to pass monitoredBarrier in (?P<limit_ms>\d{1,12}) ms"
        r"|Ranks (?P<missing_ranks>\d{1,6}(?:, \d{1,6}){1,200}) failed to pass monitoredBarrier in "
        r"(?P<limit_ms2>\d{1,12}) ms"
        r"|\[(?P<missing_rank2>\d{1,6})\] finished collective #(?P<completed>\d{1,12}), but didn't join collective"
        r" #(?P<seq>\d{1,12})"
        r"|dump signal due to a collective timeout from +rank (?P<first_rank>\d{1,6})",
    ),
    signature(
        "nccl_hang",
        "watchdog got stuck|heartbeat monitor|watchdog hang",
        r"heartbeat monitor timed out|ProcessGroupNCCL'?s? watchdog got stuck for (?P<seconds>\d{1,9}) seconds"
        r"|terminating the process after attempting to dump debug info, due to (?P<reason>[^\n]{1,120})",
        _RANK,
    ),
    signature(
        "nccl_remote_error",
        "ncclremoteerror|remote process exited|connection closed by remote peer|failed : broken "
        "pipe|connection reset by peer|retcode 6|"
        "remote error|got completion from peer|gloo/transport",
        r"ncclRemoteError|remote process exited or there was a network error"
        r"|gloo/transport/.{0,80}(?:Connection closed by peer|Connection reset by peer|Broken pipe)"
        r"|NCCL WARN .{0,200}(?:Connection closed by remote peer"
        r"|failed ?: ?(?:Broken pipe|Connection reset by peer|Connection refused|Connection timed out)|retcode 6"
        r"|Got completion (?:from peer .{0,120})?with (?:error|status))",
        r"NCCL version (?P<nccl_version>[\d.]{1,20})",
        r"last error:\s{1,4}(?P<last_error>[^\n]{1,300})",
        r"RC: (?P<retcode>\d{1,6})",
        r"retcode (?P<retcode>\d{1,6})",
        r"from rank (?P<rank>\d{1,6})\b",
        r"^(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,9}):\d{1,9} \[(?P<gpu>\d{1,3})\]",
        r"NCCL WARN (?P<warning>[^\n]{1,200})",
        r"call to (?P<call>\w{1,20}) (?:from|to) (?P<peer>[^\s<]{1,80})",
        following=4,
    ),
    signature(
        "nccl_error",
        "nccl error|ncclsystemerror|ncclinternalerror|ncclunhandledcudaerror|ncclinvalidusage"
        "|ncclinvalidargument|nccl warn|unhandled system error|unhandled cuda error|duplicate gpu",
        r"(?P<error>nccl(?:System|Internal|UnhandledCuda|InvalidUsage|InvalidArgument)Error?)\b"
        r"|Duplicate GPU detected"
        r"|NCCL error in: [^\n]{0,200}(?P<error2>unhandled (?:system|cuda) error|internal error|invalid usage"
        r"|invalid argument)"
        r"|NCCL WARN (?P<warning>(?=[^\n]{0,100}(?:fail|error|cuda failure|mismatch))[^\n]{1,200})",
        r"NCCL version (?P<nccl_version>[\d.]{1,20})",
        r"last error:\s{1,4}(?P<last_error>[^\n]{1,300})",
        _RANK,
        r"^(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,9}):\d{1,9} \[(?P<gpu>\d{1,3})\]",
        following=4,
        unless=r"ncclRemoteError|Connection closed by remote|failed ?: ?(?:Broken pipe|Connection)|retcode 6"
        r"|remote process"
        r"|Got completion|illegal memory access|NET/Plugin|libnccl-net|Could not find",
    ),
    signature(
        "store_lost",
        "tcpstore|connection was likely closed|broken pipe|store->get",
        r"(?:failed to (?:recv|send|check)|sendBytes failed|recvValue failed|recvVector failed"
        r"|recvBytes)[^\n]{0,200}(?:TCPStore|SocketImpl|Broken pipe|Connection reset)"
        r"|store->get\('[^'\n]{0,80}'\) got error: (?P<error>[^\n]{1,80})"
        r"|Connection was likely closed\. Did the remote server shutdown"
        r"|Failed to check the \"should dump\" flag on TCPStore",
        r"\[(?:PG .{0,80} )?rank (?P<rank>\d{1,6})\]",
    ),
    signature(
        "rendezvous_failed",
        "rendezvous|address already in use|eaddrinuse|store based barrier|the client socket has "
        "(?:failed|timed out)|timed out initializing process group|waiting for clients|client "
        "socket|distnetworkerror|diststoreerror",
        r"(?P<error>Rendezvous(?:Connection|Timeout|Closed|State)Error)\b(?!\))"
        r"|The client socket has (?:failed to connect|timed out)[^\n]{0,120}"
        r"|The server socket has failed to (?:listen|bind)|EADDRINUSE|errno: 98\b"
        r"|Timed out initializing process group|Timed out after \d{1,9} seconds waiting for clients",
        unless=r"^\s*(?:raise|except|from|import)\b",
    ),
    signature(
        "terminated",
        "cancelled at|terminated|sending signal|death signal|signalexception|sigterm|sigint|sighup|keyboardinterrupt",
        r"Received (?P<signal>\d{1,2}) death signal"
        r"|SignalException: Process (?P<pid>\d{1,9}) got signal: (?P<signal2>\d{1,2})"
        r"|^(?:slurmstepd: error: )?\*\*\* (?:JOB"
        r"|STEP) [\w.+-]{1,40} ON \S{1,80} CANCELLED AT \S{1,40}(?P<reason> DUE TO [A-Z ]{1,40})?"
        r"|received (?:signal )?SIG(?:TERM|INT|HUP)\b|^KeyboardInterrupt\s*$|^Detected KeyboardInterrupt"
        r"|^Terminated\s*$|^timeout: sending signal \w{1,8} to command",
    ),
    signature(
        "worker_failed",
        "failed (exitcode|exits with return code|exited on signal|with exit code|died with "
        "<signals|processexitedexception|terminated with signal|terminated with exit code|finished with exit code"
        "|exited with code|returned non-zero exit status",
        r"failed \(exitcode: (?P<exitcode>-?\d{1,6})\) local_rank: (?P<local_rank>\d{1,6}) \(pid: (?P<pid>\d{1,9})\)"
        r"|--local_rank=(?P<local_rank3>\d{1,6})\b.{0,2000}exits with return code = (?P<exitcode3>-?\d{1,6})"
        r"|(?:terminated|exited|process finished) with exit code (?P<exitcode4>[1-9]\d{0,5})\b"
        r"|^[\w.-]{1,80} exited with code (?P<exitcode5>[1-9]\d{0,5})\b"  # docker compose
        # a launcher's: a program may do without git or gcc
        r"|CalledProcessError: Command '\[?'?(?:[\w./~-]{0,300}/)?(?:python[\d.]*|torchrun|accelerate|deepspeed)\b"
        r".{0,2000} returned non-zero exit status (?P<exitcode6>[1-9]\d{0,5})\b"
        r"|process rank (?P<rank>\d{1,6}) with PID (?P<pid4>\d{1,9}) on node (?P<host>\S{1,80}) exited on signal"
        r" (?P<signal4>\d{1,3}) \((?P<signal_name4>[A-Za-z ]{1,40})\)"
        r"|Command .{0,2000} died with <Signals\.(?P<signal_name>\w{1,20}): (?P<signal>\d{1,3})>"
        r"|process (?P<local_rank2>\d{1,6}) terminated with (?:signal (?P<signal_name2>\w{1,20})"
        r"|exit code (?P<exitcode2>\d{1,6}))",
        r"--local[_-]rank[= ](?P<local_rank>\d{1,6})",
    ),
)
