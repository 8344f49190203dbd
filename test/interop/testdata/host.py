"""A host in Python, made of the real packages, for the tests of this folder.

usage: python host.py DIRECTORY SOURCE_ID KIND [DIRECTORY SOURCE_ID KIND ...]

KIND is "demo" for records in memory, "real" for a monitored backend whose
sandboxes live in this process and whose workers are processes, with the threads
t-1 and t-2 of tenant, "real=SCOPE/THREAD" for one with this conversation, or the
name of a fault. Prints "ready" when all are announced, and ends when its input does.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

from maf_sandbox import (  # noqa: E402
    BackendDeclarations,
    Capability,
    Cleanup,
    Egress,
    ExecResult,
    Isolation,
    SandboxKey,
    SandboxSpec,
    ScopePurge,
)
from maf_sandbox_tui import (  # noqa: E402
    DisposalResult,
    DisposalStatus,
    HyperlightControl,
    MemoryControl,
    MonitoredSandboxBackend,
    MonitoredSandboxRouter,
    PurgeResult,
    PurgeStatus,
    SandboxControlServer,
    SandboxRecord,
    SandboxState,
)


class Worker:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Sandbox:
    def __init__(self):
        self.id = uuid.uuid4().hex
        self.worker = Worker()

    @property
    def instance_id(self):
        return self.id

    async def reset(self, *, timeout):
        self.id = uuid.uuid4().hex

    async def run_code(self, code, *, timeout):
        return ExecResult("", "", 0)

    async def exec(self, *args, **options):
        raise NotImplementedError

    write_file = stat_file = read_file = list_dir = remove = reclaim = exec


class Backend:
    name = "hyperlight"
    isolation = Isolation.MICROVM
    declarations = BackendDeclarations(
        capabilities=frozenset({Capability.RUN_CODE, Capability.SNAPSHOT}),
        egress_modes=frozenset({Egress.CLOSED, Egress.ALLOWLIST}),
    )

    def __init__(self):
        self.live = {}

    async def acquire(self, key, spec):
        if (key, spec.kind) not in self.live:
            self.live[key, spec.kind] = Sandbox()
        return self.live[key, spec.kind]

    def end(self, fits):
        ended = [place for place in self.live if fits(*place)]
        for place in ended:
            self.live.pop(place).worker.stop()
        return len(ended)

    async def dispose(self, key, *, kind=None, instance_id=None):
        self.end(
            lambda k, d: k == key
            and kind in (None, d)
            and instance_id in (None, self.live[k, d].id)
        )

    async def dispose_scope(self, scope, thread):
        return ScopePurge(self.end(lambda k, d: (k.scope, k.thread_id) == (scope, thread)), None)


async def real(source, conversations):
    monitored = MonitoredSandboxBackend(Backend())
    router = MonitoredSandboxRouter([monitored], min_cleanup=Cleanup.RESET)
    for scope, thread in conversations:
        await router.acquire(
            SandboxKey(scope, thread, "agent"),
            SandboxSpec(
                kind="python",
                work_dir=None,
                requires=frozenset({Capability.RUN_CODE}),
                egress=Egress.ALLOWLIST,
                egress_allow=("b.example", "a.example"),
                execution_contract="contract-1",
            ),
        )

    @contextlib.asynccontextmanager
    async def quiesce(key):
        yield

    return HyperlightControl(
        monitored,
        router,
        source_id=source,
        quiesce_instance=quiesce,
        quiesced_purge=router.dispose_scope,
    )


class Faulty:
    """A control with one fault."""

    def __init__(self, source, fault):
        self.source, self.fault = source, fault

    def record(self, instance, kind="python"):
        now = time.time()
        return SandboxRecord(
            source_id=self.source,
            backend="hyperlight",
            scope="tenant/ä b",
            thread_id="t 1",
            agent_id="analyst",
            call_id="call-7",
            kind=kind,
            instance_id=instance,
            state=SandboxState.RESETTING,
            created_at=now - 100,
            last_activity_at=now - 1.5,
            process_id=None,
            execution_contract=None,
            egress_targets=("a.example",),
        )

    async def list_sandboxes(self):
        if self.fault == "list-raises":
            raise RuntimeError("secret detail")
        if self.fault == "list-slow":
            await asyncio.sleep(60)
        if self.fault == "duplicate":
            return (self.record("slash/ä+%41"), self.record("slash/ä+%41", "codeact"))
        return (self.record("slash/ä+%41"),)

    async def get_sandbox(self, instance):
        return next((r for r in await self.list_sandboxes() if r.instance_id == instance), None)

    async def dispose_sandbox(self, instance, *, timeout=10.0):
        if self.fault == "dispose-raises":
            raise RuntimeError("secret detail")
        if self.fault == "dispose-slow":
            await asyncio.sleep(60)
        if self.fault == "dispose-failed":
            return DisposalResult(DisposalStatus.FAILED, instance, "scripted failure")
        return DisposalResult(DisposalStatus.DISPOSED, instance, "scripted disposal")

    async def purge_thread(self, scope, thread, *, timeout=10.0):
        if self.fault == "purge-raises":
            raise RuntimeError("secret detail")
        if self.fault == "purge-slow":
            await asyncio.sleep(60)
        status = PurgeStatus.PARTIAL if self.fault == "purge-partial" else PurgeStatus.PURGED
        return PurgeResult(status, scope, thread, 2, "scripted purge")


async def main(arguments):
    async with contextlib.AsyncExitStack() as servers:
        for directory, source, kind in zip(*[iter(arguments)] * 3, strict=True):
            if kind == "demo":
                control = MemoryControl.demo(source_id=source)
            elif kind == "real":
                control = await real(source, [("tenant", "t-1"), ("tenant", "t-2")])
            elif kind.startswith("real="):
                control = await real(source, [tuple(kind.removeprefix("real=").split("/"))])
            else:
                control = Faulty(source, kind)
            await servers.enter_async_context(
                SandboxControlServer(control, source_id=source, manifest_directory=Path(directory))
            )
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main(sys.argv[1:]))
