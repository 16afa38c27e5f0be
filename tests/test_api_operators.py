"""Operators' routes and command: who may, what they say, and what the engine is told."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from voice_agent.api.app import AppParts, create_app
from voice_agent.api.auth import Access
from voice_agent.api.operators import create_operator_routes
from voice_agent.clock import NS_PER_MS
from voice_agent.loop_lag import LoopLag


@dataclass
class AnEngine:
    """Notes what it was told."""

    state: str = "ready"
    pid: int | None = 7
    spare_ready: bool = False
    held: list[str] = field(default_factory=lambda: ["reply_1", "reply_2"])
    told: list[str] = field(default_factory=list[str])
    work: dict[str, float] = field(default_factory=lambda: {"frames": 3})

    def reasons(self) -> list[str]:
        return []

    def restart(self) -> None:
        self.told.append("restart")

    def stop(self) -> None:
        self.told.append("stop")


def client(engine: AnEngine, page: Path, operator_keys: Sequence[str] = ("boss",)) -> httpx.AsyncClient:
    (page / "index.html").write_text("<!doctype html>")
    parts = AppParts(
        routes=create_operator_routes({"speech": engine}, {"loop_lag": lambda seconds: {"p99_ms": seconds}}),
        readiness=list,
        model_name="voice-agent",
        access=Access(["talker"]),
        page=page,
        operators=Access(operator_keys),
    )
    transport = httpx.ASGITransport(create_app(parts), client=("192.0.2.1", 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://voice.example")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_an_operator_sees_the_engines_and_gives_orders(tmp_path: Path) -> None:
    engine = AnEngine()
    http = client(engine, tmp_path)
    http.headers.update(bearer("boss"))
    expected = {"name": "speech", "state": "ready", "pid": 7, "spare_ready": False, "held": 2, "reasons": []}
    expected |= {"work": {"frames": 3}}
    assert (await http.get("/operator/engines")).json() == {"engines": [expected]}
    for order in ("restart", "stop"):
        answer = await http.post(f"/operator/engines/speech/{order}")
        assert (answer.status_code, answer.json()) == (202, expected)
    assert engine.told == ["restart", "stop"]
    assert (await http.get("/operator/loop_lag?seconds=5")).json() == {"p99_ms": 5.0}
    assert (await http.get("/operator/loop_lag?seconds=soon")).status_code == 400


async def test_unknown_engines_and_orders_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    engine = AnEngine()
    http = client(engine, tmp_path)
    http.headers.update(bearer("boss"))
    assert "there are speech" in (await http.post("/operator/engines/sing/stop")).json()["error"]["message"]
    assert (
        "restart or to stop" in (await http.post("/operator/engines/speech/burn")).json()["error"]["message"]
    )
    assert (await http.get("/operator/engines/speech/stop")).status_code == 405 and engine.told == []


@pytest.mark.parametrize("headers", [{}, bearer("talker"), bearer("")])
async def test_a_clients_key_is_no_operators_key(tmp_path: Path, headers: dict[str, str]) -> None:
    engine = AnEngine()
    http = client(engine, tmp_path)
    assert (await http.post("/operator/engines/speech/stop", headers=headers)).status_code == 401
    assert (await http.get("/operator/engines", headers=headers)).status_code == 401
    assert engine.told == []


async def test_without_keys_only_this_machine_may(tmp_path: Path) -> None:
    engine = AnEngine()
    http = client(engine, tmp_path, ())
    assert (await http.post("/operator/engines/speech/stop")).status_code == 403
    assert engine.told == []


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e400", "-1", "86401", "soon", ""])
async def test_a_span_that_is_none_is_refused_by_name(tmp_path: Path, seconds: str) -> None:
    http = client(AnEngine(), tmp_path)
    path = f"/operator/loop_lag?seconds={seconds}"
    refused = await http.get(path, headers=bearer("boss"))
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "seconds"
    assert (await http.get("/operator/loop_lag?seconds=1e3", headers=bearer("boss"))).json() == {
        "p99_ms": 1000.0
    }


class LateClock:
    """Wakes its sleeper as late as the list says, then never again."""

    def __init__(self, late_ms: Sequence[float]) -> None:
        self._late_ms = list(late_ms)
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep_until(self, instant_ns: int) -> None:
        if not self._late_ms:
            await asyncio.Event().wait()
        self._now_ns = instant_ns + int(self._late_ms.pop(0) * NS_PER_MS)


async def test_loop_lag_counts_how_late_the_probe_was() -> None:
    lag = LoopLag(LateClock([1.0] * 98 + [7.0, 15.0]))
    assert lag.summary() == {"n": 0}
    probe = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    assert lag.summary() == {"p50_ms": 1.0, "p99_ms": 7.0, "max_ms": 15.0, "n": 100}
    assert lag.summary(0.005)["n"] == 1
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
