"""Tests of allrail-run and of the bootstrap: one behaviour per call.

launcher_test.py ALLRAIL_RUN PROBE BEHAVIOUR

Exit code 0: it holds; 1: it does not, and why is printed; 77: cannot be tried here.
After every behaviour no process of the test may be left, and no file in /tmp or /dev/shm.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import (
    BEHAVIOUR,
    PRIVATE,
    PROBE,
    RUN,
    Result,
    Skip,
    enter_private_tmp,
    environment,
    expect,
    files,
    finish,
    helper_process,
    job,
    marked_processes,
    read_line,
    run,
    run_within,
    start,
    wait_for_ranks,
    wait_until,
)
from janitor_cases import (  # noqa: F401, looked up by name
    test_janitor_awaits_who_is_ending,
    test_janitor_leaves_names_of_the_living,
)
from server_cases import (  # noqa: F401, looked up by name
    test_server_answers_at_once,
    test_server_killed,
    test_server_killed_at_the_end,
    test_server_killed_in_start,
    test_server_killed_with_a_rank,
    test_server_settings,
)
from signal_cases import (  # noqa: F401, looked up by name
    test_ignored_child_signal,
    test_ignored_signals,
    test_interrupt,
    test_signals_forwarded,
    test_stubborn_interrupt,
    test_suspend,
)
from terminal_cases import (  # noqa: F401, looked up by name
    test_no_progress_without_a_terminal,
    test_progress_of_a_rank_with_a_tag,
    test_progress_on_a_terminal,
)


# ---- bootstrap ----


def test_exchange():
    result = job(8, "--exchanges", "3", "report")
    expect(result.code == 0, "8 ranks exchange blobs three times", result)
    lines = sorted(result.out.splitlines())
    expect(len(lines) == 8, "every rank reports", result)
    names = set()
    for rank, line in enumerate(lines):
        expect(line.startswith("rank %d of 8 job allrail-run-" % rank), "rank and size", result)
        expect(line.endswith("launcher true local 0 1 2 3 4 5 6 7"), "local ranks", result)
        names.add(line.split()[5])
    expect(len(names) == 1, "one job name", result)


def test_many_ranks():
    result = job(100, "report")
    expect(result.code == 0, "100 ranks", result)
    expect(len(set(result.out.splitlines())) == 100, "100 different reports", result)
    expect(result.out.splitlines()[0].endswith(" 98 99"), "all are local", result)


def test_singleton():
    result = run([PROBE, "report"], env=environment(PMIX_MCA_gds="hash"))
    expect(result.code == 0, "without a launcher it is a job of one rank", result)
    expect(result.out == "rank 0 of 1 job singleton launcher false local 0\n", "report", result)


def job_environment():
    """The PMIX_* variables of a rank of a job that has ended."""
    result = run([RUN, "-n", "1", "env"])
    expect(result.code == 0, "env as a rank", result)
    lines = [line for line in result.out.splitlines() if line.startswith("PMIX_")]
    return dict(line.split("=", 1) for line in lines)


def test_stale_variables():
    result = run_within(3, [PROBE, "report"], env=environment(**job_environment()))
    expect(result.code == 5 and "ERROR bootstrap" in result.err, "an error, no singleton", result)
    expect("stale" in result.err and "unset PMIX_*" in result.err, "says what to do", result)
    expect("allrail-run-" in result.err and "rank 0" in result.err, "names job and rank", result)


def test_partial_variables():
    variables = job_environment()
    for name in ("PMIX_NAMESPACE", "PMIX_RANK"):
        some = {key: value for key, value in variables.items() if key != name}
        result = run([PROBE, "report"], env=environment(**some))
        expect(
            result.code == 5 and "ERROR bootstrap" in result.err and name in result.err,
            "without %s it is an error that names it" % name,
            result,
        )


def test_old_server():
    result = run_within(3, [RUN, "-n", "1", "env", "PMIX_VERSION=2.1.4", PROBE])
    expect(result.code == 5 and "ERROR bootstrap" in result.err, "an old server", result)
    expect("too old" in result.err and "2.1.4" in result.err, "names the versions", result)


def test_hung_server():
    process = start([RUN, "-n", "2", PROBE, "--delay", "800", "--timeout", "700"])
    began = time.monotonic()
    wait_for_ranks(2)
    os.kill(helper_process("allrail-pmix"), signal.SIGSTOP)
    result = finish(process, began)
    expect(result.code == 5 and "ERROR timeout" in result.err, "a clock of its own", result)
    expect("did not answer within 700 ms" in result.err and result.seconds < 6, "bounded", result)


def test_dead_peer_in_exchange():
    # Rank 1 never comes: without the clock the others would wait for it for ever.
    script = 'if [ "$PMIX_RANK" = 1 ]; then sleep 30; fi; exec "$0" --timeout 800'
    result = run([RUN, "-n", "3", "sh", "-c", script, PROBE])
    expect(result.code == 5 and "ERROR timeout" in result.err, "a fence with a deadline", result)
    expect("not all 3 ranks" in result.err and result.seconds < 5, "says so in time", result)


# ---- options ----


def test_nodes_setting():
    for nodes in ("4", "3+1+2", "cyclic:4", "0,1,0,2"):
        result = job(
            4, "env:ALLRAIL_NODES", options=["--nodes", nodes], env=environment(ALLRAIL_NODES="77")
        )
        expect(result.out == "ALLRAIL_NODES=%s\n" % nodes * 4, "nodes %s" % nodes, result)
    result = job(2, "env:ALLRAIL_NODES", env=environment(ALLRAIL_NODES="2"))
    expect(result.out == "ALLRAIL_NODES=2\n" * 2, "from the environment", result)
    result = job(8, options=["--nodes", "9"])
    expect(result.code == 2 and "more nodes than ranks" in result.err, "9 nodes of 8", result)


def test_ranks_load_little():
    shared = run([RUN, "-n", "1", "sh", "-c", "ls $PMIX_SERVER_TMPDIR"])
    expect("hwloc.sm" in shared.out.split(), "the server shares what it knows of the cores", shared)
    for mine, found in ((None, False), ("-no_os", True)):
        env = environment(HWLOC_COMPONENTS_VERBOSE="1", HWLOC_COMPONENTS=mine)
        server = run([RUN, "-n", "1", "true"], env=env)
        left_out = "Blacklisting component `linux`" in server.err
        expect(left_out != found, "the server looks for devices: %s" % found, server)
    variable = "HWLOC_PLUGINS_BLACKLIST"
    plain = {name: value for name, value in environment().items() if name != variable}
    result = job(2, "env:" + variable, env=plain)
    for unused in ("gl", "opencl", "pci"):
        expect("hwloc_%s.so" % unused in result.out, "no drivers of displays and GPUs", result)
    for mine in ("", "hwloc_pci.so"):
        result = job(2, "env:" + variable, env={**plain, variable: mine})
        expect(result.out == "%s=%s\n" % (variable, mine) * 2, "the user's own choice", result)


def test_options():
    for arguments, text in (
        (["-n", "0", "true"], "-n"),
        (["true"], "required"),
        (["-n", "2"], "no program"),
        (["-n", "2", "--frob", "true"], "--frob"),
        (["-n", "x", "true"], "-n"),
    ):
        result = run([RUN, *arguments])
        expect(result.code == 2 and text in result.err, "usage error %s" % arguments, result)
        expect(len(result.err.splitlines()) == 1, "one line", result)
    expect("--tag-output" in run([RUN, "--help"]).out, "help")
    # What follows the program is the program's, also if the launcher knows it.
    for separator in ([], ["--"]):
        result = run([RUN, "-n", "1", *separator, "echo", "-n", "7", "--timeout", "--", "x"])
        expect(result.out == "7 --timeout -- x\n", "arguments of the program", result)


def test_program_not_found():
    for program, code in (
        ("/no/such/program", 127),
        ("no-such-program", 127),
        ("/etc/passwd", 126),
        ("/", 126),
    ):
        result = run([RUN, "-n", "2", program])
        expect(result.code == code and program in result.err, "%s: %d" % (program, code), result)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        for text, code in (("#!/no/such/interpreter\n", 127), ("\x7fELF nonsense", 126)):
            path = os.path.join(folder, "broken")
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o755)
            result = run([RUN, "-n", "4", path])
            expect(result.code == code, "exec fails: %d" % code, result)
            expect(len(result.err.splitlines()) == 1 and path in result.err, "one line", result)


# ---- input and output ----


def test_whole_lines():
    ranks, count = 8, 200
    result = job(ranks, "--skip-bootstrap", "lines:%d" % count)
    expect(result.code == 0, "lines", Result(result.code, "", result.err, result.seconds))
    seen = {rank: 0 for rank in range(ranks)}
    for line in result.out.splitlines():
        match = re.fullmatch(r"<(\d+) (\d+) (([a-z])\4*)>", line)
        expect(match, "a whole line, not %.200r" % line)
        rank, number, body = int(match[1]), int(match[2]), match[3]
        expect(number == seen[rank], "lines of rank %d in order" % rank)
        expect(len(body) == 20 + number * 13 % 9000, "length of the line")
        seen[rank] += 1
    expect(all(lines == count for lines in seen.values()), "all lines: %s" % seen)


def test_partial_last_line():
    result = job(3, "print:no newline")
    expect(result.out == "no newline\n" * 3, "flushed with a newline", result)
    result = job(1, "print:last words", "kill:9")
    expect(result.out == "last words\n", "also of a killed rank", result)


def test_tag_output():
    result = job(3, "print:one\ntwo", options=["--tag-output"])
    expected = sorted("[%d] %s" % (rank, word) for rank in range(3) for word in ("one", "two"))
    expect(sorted(result.out.splitlines()) == expected, "tags", result)
    result = run([RUN, "-n", "1", "--tag-output", "sh", "-c", "echo oops >&2"])
    expect(result.err == "[0] oops\n", "tags on standard error", result)


def test_input():
    text = b"".join(b"line %d\n" % line for line in range(5000))
    result = job(3, "cat", text=text)
    expect(
        result.out.encode() == text,
        "rank 0 has it whole, the others have none",
        Result(result.code, "", result.err, result.seconds),
    )


def test_terminal_input():
    child, terminal = pty.fork()
    if child == 0:
        os.execve(RUN, [RUN, "-n", "2", PROBE, "cat", "print:done\n"], environment())
    os.write(terminal, b"typed\n\x04")
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:
        pass
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    lines = text.decode().split()
    expect(os.waitstatus_to_exitcode(status) == 0, "exit code %r %r" % (status, text))
    expect(lines.count("typed") == 2 and lines.count("done") == 2, "echo and copy: %r" % text)


def test_closed_output():
    began = time.monotonic()
    process = start([RUN, "-n", "2", PROBE, "--skip-bootstrap", "lines:100000"])
    process.stdout.read(1000)
    process.stdout.close()
    process.wait(timeout=20)
    result = Result(
        process.returncode, "", process.stderr.read().decode(), time.monotonic() - began
    )
    process.stderr.close()
    expect(result.code == 128 + signal.SIGPIPE, "ranks see the closed pipe", result)


def test_slow_reader():
    # 20 MB that nobody reads yet: the launcher does not swallow them, and a signal still works.
    process = start([RUN, "-n", "2", "--timeout", "1", PROBE, "--skip-bootstrap", "lines:3000"])
    began = time.monotonic()
    process.wait(timeout=10)
    seconds = time.monotonic() - began
    expect(process.returncode == 124 and seconds < 4, "ends with a stuck reader: %s" % seconds)
    process.communicate()
    process = start([RUN, "-n", "2", PROBE, "--skip-bootstrap", "lines:1000"])
    time.sleep(1)
    out, _ = process.communicate(timeout=30)
    expect(len(out.splitlines()) == 2000 and process.returncode == 0, "nothing lost")


# ---- ends ----


def check_end(result, code, *words):
    expect(result.code == code, "exit code %d" % code, result)
    lines = result.err.splitlines()
    expect(len(lines) == 1, "one line on standard error", result)
    for word in words:
        expect(word in lines[0], "%r in the line" % word, result)
    expect(result.seconds < 2, "within 2 s", result)


def test_rank_killed():
    for number in (signal.SIGKILL, signal.SIGSEGV):
        result = job(4, "2@kill:%d" % number, "sleep:30000")
        check_end(result, 128 + number, "rank 2", "pid", "signal %d" % number)
    result = job(4, "--skip-bootstrap", "1@kill:6", "sleep:30000")
    check_end(result, 134, "rank 1", "signal 6")


def test_rank_exit_code():
    result = job(4, "3@exit:7", "sleep:30000")
    check_end(result, 7, "rank 3", "pid", "exited with code 7")


def test_blame():
    # The launcher sees all these ends at once, rank 0 first, as when ranks answer to a death faster
    # than the kernel ends the one that was killed.
    for first in ("0@exit:3", "0@kill:6"):
        actions = ["print:ready\n", "cat", first, "1@sleep:200", "1@kill:9", "sleep:30000"]
        process = start([RUN, "-n", "3", PROBE, *actions], stdin=subprocess.PIPE)
        began = time.monotonic()
        for _ in range(3):
            read_line(process.stdout, "ready")
        os.kill(process.pid, signal.SIGSTOP)
        process.stdin.close()
        process.stdin = None
        wait_until(lambda: zombies_of(process.pid) == 2, "two dead ranks")
        os.kill(process.pid, signal.SIGCONT)
        check_end(finish(process, began), 137, "rank 1", "signal 9")


def zombies_of(parent):
    """How many children of the process have ended and were not waited for."""
    found = 0
    for entry in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % entry) as file:
                state, of = file.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):
            continue
        found += state == "Z" and int(of) == parent
    return found


def test_keep_going():
    actions = ["0@exit:5", "2@kill:9", "sleep:300", "print:still here\n"]
    result = job(4, *actions, options=["--keep-going"])
    expect(result.out == "still here\n" * 2, "the others go on", result)
    expect(result.code in (5, 137), "the code of the first failure", result)
    lines = result.err.splitlines()
    expect(len(lines) == 2, "a line for every failed rank", result)
    for rank, how in ((0, "exited with code 5"), (2, "signal 9")):
        expect(any("rank %d " % rank in x and how in x for x in lines), "names it", result)


def test_stubborn_ranks():
    result = job(3, "trap:15", "1@exit:3", "sleep:30000")
    check_end(result, 3, "rank 1", "exited with code 3")
    expect("caught 15" in result.out, "asked before killed", result)


def test_abort():
    result = job(4, "1@abort:9", "sleep:30000")
    check_end(result, 9, "rank 1", "pid", "aborted", "code 9", "the probe was told to")
    result = job(2, "0@abort:0", "sleep:30000")
    expect(result.code == 1, "an abort never looks like a success", result)


def test_early_zero_exit():
    result = job(3, "0@exit:0", "sleep:300", "print:still here\n")
    expect(result.code == 0 and result.err == "", "not an error", result)
    expect(result.out == "still here\n" * 2, "the others go on", result)
    result = run([RUN, "-n", "3", "true"])
    expect(result.code == 0 and result.err == "", "programs without PMIx", result)


def test_timeout():
    result = job(3, "sleep:30000", options=["--timeout", "0.7"])
    check_end(result, 124, "0.7 s", "--timeout")
    expect(result.seconds >= 0.7, "not before", result)
    result = job(2, options=["--timeout", "30"])
    expect(result.code == 0 and result.seconds < 10, "an ordinary end before it", result)


def test_launcher_killed():
    process = start(
        [RUN, "-n", "4", PROBE, "child:60000", "daemon:60000", "print:ready\n", "sleep:60000"]
    )
    for _ in range(4):
        read_line(process.stdout, "ready")
    process.kill()
    wait_until(lambda: not marked_processes(), "the end of all ranks and their children", 3)
    process.communicate()


def test_launcher_killed_in_start():
    for step in range(25):
        process = start([RUN, "-n", "4", PROBE, "sleep:60000"])
        time.sleep(0.004 * step)
        process.kill()
        process.communicate()
    wait_until(lambda: not marked_processes(), "the end of all ranks", 5)


def test_group_killed():
    process = start([RUN, "-n", "3", PROBE, "print:ready\n", "sleep:60000"], start_new_session=True)
    for _ in range(3):
        read_line(process.stdout, "ready")
    os.killpg(process.pid, signal.SIGKILL)
    wait_until(lambda: not marked_processes(), "the end of all ranks", 3)
    process.communicate()


def test_strays():
    result = job(3, "child:60000", "daemon:60000", "print:out\n")
    expect(result.code == 0 and result.out == "out\n" * 3, "ends although children live", result)
    expect(result.seconds < 5, "does not wait for them", result)


def test_janitor_killed():
    process = start([RUN, "-n", "2", PROBE, "daemon:60000", "print:ready\n", "sleep:300"])
    began = time.monotonic()
    for _ in range(2):
        read_line(process.stdout, "ready")
    os.kill(helper_process("allrail-janitor"), signal.SIGKILL)
    result = finish(process, began)
    expect(result.code == 0, "the job ends as it would, and nothing is left", result)


def test_nested():
    result = run([RUN, "-n", "2", RUN, "-n", "3", PROBE, "report"])
    expect(result.code == 0, "a launcher as a rank", result)
    expect(len(result.out.splitlines()) == 6 and "of 3" in result.out, "inner jobs", result)
    process = start(
        [RUN, "-n", "1", RUN, "-n", "2", PROBE, "daemon:60000", "print:ready\n", "sleep:60000"]
    )
    for _ in range(2):
        read_line(process.stdout, "ready")
    process.kill()
    wait_until(lambda: not marked_processes(), "the end of the inner job", 3)
    process.communicate()


def test_concurrent_jobs():
    began = time.monotonic()
    jobs = [start([RUN, "-n", "3", PROBE, "report"]) for _ in range(6)]
    for process in jobs:
        result = finish(process, began)
        expect(result.code == 0 and len(result.out.splitlines()) == 3, "one of 6 jobs", result)


def check_under(command, abort_code):
    result = run([*command, PROBE, "--exchanges", "2", "report"])
    expect(result.code == 0, "the bootstrap under another launcher", result)
    lines = [line for line in result.out.splitlines() if line.startswith("rank ")]
    expect(
        len(lines) == 6 and all(line.endswith("local 0 1 2 3 4 5") for line in lines),
        "all ranks report",
        result,
    )
    result = run([*command, PROBE, "2@abort:9", "sleep:30000"])
    expect(result.code == abort_code and result.seconds < 10, "abort under it", result)
    # What other launchers leave in /tmp is not ours.
    for folder in os.listdir("/tmp"):
        if folder.startswith(("ompi.", "prte.")) and os.environ.get(PRIVATE):
            shutil.rmtree(os.path.join("/tmp", folder), ignore_errors=True)


def test_openmpi():
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise Skip("mpirun of Open MPI is not installed")
    version = run([mpirun, "--version"]).out
    if "Open MPI) 4" not in version:
        raise Skip("mpirun is not that of Open MPI 4: " + version.split("\n", 1)[0])
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    check_under([mpirun, *root, "--oversubscribe", "--bind-to", "none", "-n", "6"], 9)


def test_prterun():
    prterun = shutil.which("prterun")
    if prterun is None:
        raise Skip("prterun is not installed")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    check_under([prterun, *root, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", "6"], 9)


def main():
    enter_private_tmp()
    before = files()
    try:
        globals()["test_" + BEHAVIOUR]()
        wait_until(lambda: not marked_processes(), "no process left: %s" % marked_processes(), 3)
        wait_until(lambda: not files() - before, "no file left: %s" % (files() - before), 3)
    except Skip as reason:
        print("skipped:", reason)
        return 77
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        print("FAILED %s: %s" % (BEHAVIOUR, failure))
        for pid, line in marked_processes():
            print("killing what is left: %d %s" % (pid, line))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
