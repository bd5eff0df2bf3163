"""Breaks rails and ranks between two guests and says what became of the job.

    tests/lab/guest --guests 2 --timeout 600 -- tests/guest/campaign.sh [OPTIONS]

cuts   a random rail is cut in a random guest, its link down or everything that it sends lost, for a
       moment or until a fence proves that it was noticed; it must carry bytes again afterwards
flaps  one rail goes down for a second and must carry bytes again, in both directions
again  a job is killed while a rail is down, which may break the connection manager that made its
       links; the rail must carry bytes in the next job
loss   both rails lose 1 % of their packets in both directions
kill   SIGKILL of a random rank, as prterun treats it by default (the job ends) and with
       --runtime-options recoverable (every other rank says which rank is lost)
stop   SIGSTOP of a random rank for 15 s: nothing ends

Links are made by librdmacm alone (ALLRAIL_CONNECT=cm), those of cuts, flaps and again also
directly: a connection manager that had something to send just as its link went down is of no
use any more on soft-RoCE, see docs/reliability.md. Meanwhile the ranks make allgathers of 8
bytes to 1 MiB and check every byte. Between campaigns nothing may be left in either guest.
"""

import argparse
import random
import sys
import time

from job import (
    RAILS,
    RANKS,
    RANKS_PER_GUEST,
    Failure,
    Guest,
    Job,
    await_clean,
    expect,
    wait_until,
)

COUNTS = {  # in ./check, and with --long
    "cuts": (20, 200),
    "flaps": (5, 50),
    "again": (1, 10),
    "loss": (100, 1000),
    "kill": (2, 40),
    "stop": (1, 4),
}
SIZES = "bytes=8,262144,4096,1048576"
FOREVER = ("seconds=100000", "until=/tmp/stop", "report=0.2")
CARRIED_BYTES = 256 << 10  # a rail that has sent this much since it came back carries again
# The promises are 1 s where the rank was on the same host, 5 s elsewhere and for the end of a job.
# Here every step is emulated, on a machine that does other things too.
EMULATED = 4


def say(text):
    print(text, flush=True)


def say_how_far(what, number, count):
    """Now and then in a long campaign: a quarter of an hour without a word looks like a hang."""
    if (number + 1) % 10 == 0 and number + 1 < count:
        say("%s: %d of %d held" % (what, number + 1, count))


class Breaker:
    """Breaks one rail in one guest and makes it whole again."""

    def __init__(self, guest, rail, kind):
        self.guest, self.device, self.kind = guest, "eth%d" % rail, kind

    def cut(self):
        if self.kind == "down":
            self.guest.run("ip link set %s down" % self.device)
        else:
            # A full queue would be an error at once and not a loss: hence the limit.
            self.guest.run(
                "tc qdisc replace dev %s root netem loss 100%% limit 100000" % self.device
            )

    def heal(self):
        if self.kind == "down":
            self.guest.run("ip link set %s up" % self.device)
        else:
            self.guest.run("tc qdisc delete dev %s root" % self.device)


def await_carrying(job, rail, text):
    """The rail carries both ways for every rank that talks. Returns how long that took.

    What was sent before the ranks noticed that the rail was gone does not count, though it is
    reported later.
    """
    began = time.monotonic()
    job.await_news()
    before = job.counters(rail, "sent"), job.counters(rail, "received")

    def carries():
        now = job.counters(rail, "sent"), job.counters(rail, "received")
        return job.connected(rail) and all(
            b - a > CARRIED_BYTES for old, new in zip(before, now) for a, b in zip(old, new)
        )

    job.await_more(carries, text)
    return time.monotonic() - began


def cut_once(job, chance, guests, long_cut):
    guest, rail = chance.choice(guests), chance.randrange(RAILS)
    kind = chance.choice(("down", "one way"))
    what = "rail %d %s in guest %d" % (rail, kind, guest.number)
    time.sleep(chance.uniform(0, 0.3))
    fences, calls = sum(job.counters(rail, "fences")), job.calls()
    job.lines.append("%.1f: cut %s" % (time.monotonic(), what))
    breaker = Breaker(guest, rail, kind)
    breaker.cut()
    if long_cut:
        job.await_more(lambda: sum(job.counters(rail, "fences")) > fences, what + " was noticed")
        calls = job.calls()
        job.await_more(lambda: job.calls() >= calls + 3, what + " and calls end without it")
    else:
        time.sleep(chance.uniform(0, 0.5))
    breaker.heal()
    job.lines.append("%.1f: healed at call %d" % (time.monotonic(), job.calls()))
    back = await_carrying(job, rail, what + " and carries again")
    job.lines.append("%.1f: back at call %d" % (time.monotonic(), job.calls()))
    return kind, sum(job.counters(rail, "fences")) > fences, back


def summary(job):
    totals = {
        name: sum(sum(job.counters(rail, name)) for rail in range(RAILS))
        for name in ("fences", "replays", "reconnects")
    }
    return "%d calls, the longest %.1f s; %d fences, %d replays, %d reconnects" % (
        job.calls(),
        max(rank.longest_s for rank in job.ranks),
        totals["fences"],
        totals["replays"],
        totals["reconnects"],
    )


def run_cuts(chance, count, guests, jobs):
    job = jobs((SIZES, *FOREVER), connect="auto")
    job.await_start()
    cuts = []
    for number in range(count):
        cuts.append(cut_once(job, chance, guests, number % 2 == 0))
        say_how_far("cuts", number, count)
    job.expect_success(job.finish())
    return "%d cuts (%d link down, %d one way; %d noticed), back after %.1f s at most; %s" % (
        count,
        sum(kind == "down" for kind, _, _ in cuts),
        sum(kind != "down" for kind, _, _ in cuts),
        sum(noticed for _, noticed, _ in cuts),
        max(back for _, _, back in cuts),
        summary(job),
    )


def run_flaps(chance, count, guests, jobs):
    """With a flat algorithm: every rank has links to both ranks of the other guest."""
    rail, guest = chance.randrange(RAILS), chance.choice(guests)
    job = jobs((SIZES, "algorithm=direct", *FOREVER), connect="auto")
    job.await_start()
    slowest = 0.0
    for number in range(count):
        breaker = Breaker(guest, rail, "down")
        breaker.cut()
        time.sleep(1)
        breaker.heal()
        text = "rail %d carries again after flap %d" % (rail, number + 1)
        slowest = max(slowest, await_carrying(job, rail, text))
        say_how_far("flaps", number, count)
    job.expect_success(job.finish())
    return "%d flaps of rail %d in guest %d, back after %.1f s at most; %s" % (
        count,
        rail,
        guest.number,
        slowest,
        summary(job),
    )


def run_again(chance, count, guests, jobs):
    slowest = 0.0
    for _ in range(count):
        rail, guest = chance.randrange(RAILS), chance.choice(guests)
        job = jobs((SIZES, "algorithm=direct", *FOREVER), connect="auto")
        job.await_start()
        breaker = Breaker(guest, rail, "down")
        breaker.cut()
        guest.run("pkill -KILL collective-prob")
        expect(job.join() != 0, "the job does not say that a rank was killed")
        await_clean(guests)
        breaker.heal()
        job = jobs((SIZES, "algorithm=direct", *FOREVER), connect="auto")
        job.await_start()
        text = "rail %d, down in guest %d, carries in the next job" % (rail, guest.number)
        slowest = max(slowest, await_carrying(job, rail, text))
        job.expect_success(job.finish())
        await_clean(guests)
    return "%d times, after %.1f s at most" % (count, slowest)


def dropped_packets(guest):
    words = guest.run(
        "tc -s qdisc show | grep -A1 'qdisc netem' | grep -o 'dropped [0-9]*'"
    ).split()
    return sum(int(word) for word in words[1::2])


def run_loss(chance, count, guests, jobs):
    del chance
    job = jobs(("bytes=262144,8,65536,4096", "calls=%d" % count, "seconds=100000", "report=0.2"))
    for guest in guests:
        for rail in range(RAILS):
            guest.run("tc qdisc replace dev eth%d root netem loss 1%% limit 100000" % rail)
    limit_s = 90 + count
    wait_until(lambda: not job.alive(), "%d allgathers with loss" % count, limit_s)
    dropped = sum(dropped_packets(guest) for guest in guests)
    for guest in guests:
        for rail in range(RAILS):
            guest.run("tc qdisc delete dev eth%d root" % rail)
    job.expect_success(job.join())
    expect(dropped > count / 10, "only %d packets were lost" % dropped)
    return "%d packets lost; %s" % (dropped, summary(job))


def kill_once(chance, guests, jobs, recoverable):
    victim = chance.randrange(RANKS)
    job = jobs((SIZES, *FOREVER), recoverable=recoverable)
    job.await_start()
    time.sleep(chance.uniform(0, 1))
    clocks = [guest.clock() for guest in guests]
    guests[victim // RANKS_PER_GUEST].run("kill -KILL %d" % job.ranks[victim].pid)
    killed = time.monotonic()
    code = job.join()
    took = time.monotonic() - killed
    what = "rank %d killed, recoverable %s" % (victim, recoverable)
    expect(code != 0, "%s: the exit code is 0" % what)
    if not recoverable:
        expect(took < 5 * EMULATED, "%s: the job ended after %.1f s" % (what, took))
        return 0, took
    job.read_files(guests)
    near = far = 0.0
    for number, rank in enumerate(job.ranks):
        if number == victim:
            continue
        expect(rank.error, "%s: rank %d says nothing" % (what, number))
        reason, peer, when = rank.error
        expect(
            reason == "peer-lost" and peer == victim,
            "%s: rank %d says %s of rank %d" % (what, number, reason, peer),
        )
        took_here = when - clocks[number // RANKS_PER_GUEST]
        if number // RANKS_PER_GUEST == victim // RANKS_PER_GUEST:
            near = max(near, took_here)
        else:
            far = max(far, took_here)
    expect(near < 1 * EMULATED, "%s: its guest knew it after %.1f s" % (what, near))
    expect(far < 5 * EMULATED, "%s: the other guest knew it after %.1f s" % (what, far))
    return max(near, far), took


def run_kill(chance, count, guests, jobs):
    known = ended = 0.0
    for number in range(count):
        error_s, end_s = kill_once(chance, guests, jobs, number % 2 == 1)
        await_clean(guests)
        known = max(known, error_s)
        ended = max(ended, end_s)
        say_how_far("kills", number, count)
    return "%d kills, known everywhere after %.1f s, the job gone after %.1f s at most" % (
        count,
        known,
        ended,
    )


def receiver_not_ready(guests):
    """Packets for which no receive was posted: the credits must not let it happen."""
    files = "cat /sys/class/infiniband/rxe*/ports/1/hw_counters/*rnr_err"
    return sum(int(word) for guest in guests for word in guest.run(files).split())


def run_stop(chance, count, guests, jobs):
    job = jobs((SIZES, *FOREVER))
    job.await_start()
    for _ in range(count):
        victim = chance.randrange(RANKS)
        guest, pid = guests[victim // RANKS_PER_GUEST], job.ranks[victim].pid
        guest.run("kill -STOP %d" % pid)
        time.sleep(15)
        expect(job.alive(), "the job ended while rank %d was stopped" % victim)
        guest.run("kill -CONT %d" % pid)
        calls = job.calls()
        job.await_more(lambda: job.calls() > calls + 3, "rank %d goes on" % victim)
    job.expect_success(job.finish())
    return "%d stops of 15 s; %s" % (count, summary(job))


CAMPAIGNS = {  # those that need the connection manager come first
    "loss": run_loss,
    "kill": run_kill,
    "stop": run_stop,
    "cuts": run_cuts,
    "flaps": run_flaps,
    "again": run_again,
}


def run_campaign(name, seed, count, guests):
    """Returns whether it held."""
    started = []

    def start(words, **options):
        started.append(Job(words, **options))
        return started[-1]

    began = time.monotonic()
    try:
        text = CAMPAIGNS[name](random.Random("%s %d" % (name, seed)), count, guests, start)
        await_clean(guests)
        not_ready = receiver_not_ready(guests)
        expect(not_ready == 0, "%d packets found no receive" % not_ready)
    except Failure as failure:
        say("%s FAILED, seed %d: %s" % (name, seed, failure))
        if started:
            say("\n".join(started[-1].lines[-60:]))
            say("\n".join(str(rank.progress) for rank in started[-1].ranks))
        for job in started:
            job.end()
        return False
    say("%s, seed %d, %.0f s: %s" % (name, seed, time.monotonic() - began, text))
    return True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help="campaigns, with commas")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, help="of each campaign, instead of its own")
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    guests = [Guest(0), Guest(1)]
    held = True
    for name in arguments.only.split(","):
        count = arguments.count or COUNTS[name][1 if arguments.long else 0]
        held = run_campaign(name, arguments.seed, count, guests) and held
        if not held:
            break
    for guest in guests:
        guest.close()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
