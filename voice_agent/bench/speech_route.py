"""`python -m voice_agent.bench.speech_route`: a speech engine behind the smallest HTTP route, to measure the engine.

POST /v1/audio/speech as the real route takes it (input, voice, latency_first, seed) with `max_new_tokens` for forced
lengths; the answer is 24 kHz int16, chunk by chunk. GET /operator/engines tells the engine's totals. The standard
library only, beside the engine's process: for machines that have the engine's packages and no others. Not for serving:
it asks nobody who they are.
"""

import argparse
import asyncio
import json
import re
import socket
import sys
from collections.abc import Sequence
from typing import Any

from voice_agent.bench import arguments
from voice_agent.clock import MonotonicClock
from voice_agent.engine.messages import Failed, Finished, Speak, SpeakEnd, SpeakText, SpeechChunk, SpokenWord
from voice_agent.engine.runtime import EngineLimits, EngineSpec, TalkerOptions
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineError

NAME = "speech_route"
OPTIONS = "the family's, as JSON"
WORD = re.compile(r"\S+")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\nx-sample-rate: 24000\r\ntransfer-encoding: chunked\r\n\r\n"
STATUS = {400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted; prints `ready` with what the engine says of itself."""
    parser = arguments.parser(f"python -m voice_agent.bench.{NAME}", (__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=arguments.whole(0, 65535), default=8000)
    parser.add_argument("--family", default="qwen3-tts")
    parser.add_argument("--folder", default="")
    parser.add_argument("--voice", default="ryan")
    parser.add_argument("--options", type=arguments.json_object, default={"random": True}, help=OPTIONS)
    parser.add_argument("--timings", action="store_true", help="print the engine's own ms of every reply")
    options = parser.parse_args(argv)
    if options.family == "qwen3-tts" and arguments.lacks(NAME, "torch"):
        return 2
    try:
        listening = socket.create_server(("127.0.0.1", options.port))
    except OSError as error:
        parser.error(f"--port: {options.port} cannot be listened on: {error.strerror}")
    try:
        asyncio.run(_serve(options, listening))
    except KeyboardInterrupt:
        return 0
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace, listening: socket.socket) -> None:
    talker = TalkerOptions(options.family, options.folder, options.voice, extra=options.options)
    limits = EngineLimits(start_s=300.0, queued_requests=4096, queued_results=4096)
    spec = EngineSpec("speech", talker=talker, limits=limits, env={"OMP_NUM_THREADS": "1"})
    engine = EngineProcess(
        "speech", spec, MonotonicClock(), on_loading=lambda stage: print("loading", stage, flush=True)
    )
    await engine.start()
    route = Route(engine, options.timings)
    server = await asyncio.start_server(route.connection, sock=listening)
    print("ready", json.dumps(engine.describe), flush=True)
    try:
        await server.serve_forever()
    finally:
        await engine.close()


class Route:
    """Connections in, requests one after the other on each."""

    def __init__(self, engine: EngineProcess, timings: bool = False) -> None:
        self._engine = engine
        self._timings = timings

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the other side closes."""
        try:
            while (request := await _read(reader)) is not None:
                await self._answer(writer, *request)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the caller went away, or does not speak HTTP
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        if path.startswith("GET /operator/engines"):
            told = json.dumps({"engines": [{"name": "speech", "work": self._engine.work}]}).encode()
            kind = f"content-type: application/json\r\ncontent-length: {len(told)}"
            writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode() + told)
            return
        if not path.startswith("POST /v1/audio/speech"):
            _refuse(writer, 404, "only POST /v1/audio/speech is here")
            return
        asked: dict[str, Any] = json.loads(body)
        epoch = self._engine.next_epoch()
        speak = Speak(
            f"say-{epoch}",
            epoch,
            asked.get("voice", ""),
            latency_first=asked.get("latency_first", True),
            seed=asked.get("seed", epoch),
            most_frames=asked.get("max_new_tokens", 0),
            instructions=asked.get("instructions", ""),
        )
        words = [SpokenWord(m.group(), m.start(), m.end()) for m in WORD.finditer(asked["input"])]
        try:
            await self._stream(writer, speak, words)
        except EngineError as error:
            _refuse(writer, 500, str(error))

    async def _stream(self, writer: asyncio.StreamWriter, speak: Speak, words: list[SpokenWord]) -> None:
        begun = False
        async with self._engine.submit(speak) as stream:
            stream.push(SpeakText(speak.request_id, speak.epoch, words, "en"))
            stream.push(SpeakEnd(speak.request_id, speak.epoch))
            async for result in stream:
                match result:
                    case SpeechChunk(pcm=pcm) if pcm:
                        writer.write((b"" if begun else HEAD) + b"%x\r\n" % len(pcm) + pcm + b"\r\n")
                        begun = True
                        await writer.drain()
                    case Failed(final=True) if not begun:
                        _refuse(writer, 429 if result.code == "busy" else 500, result.message)
                        return
                    case Failed(final=True):
                        writer.close()  # a broken answer must not look whole
                        return
                    case Finished(timings_ms=timings_ms):
                        if self._timings:
                            print("reply", json.dumps(timings_ms), flush=True)
                        writer.write((b"" if begun else HEAD) + b"0\r\n\r\n")
                        return
                    case _:
                        pass


async def _read(reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
    """Request line and body of the next request; None at the end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    length = re.search(r"content-length:\s*(\d+)", head, re.IGNORECASE)
    return head.split("\r\n", 1)[0], await reader.readexactly(int(length.group(1)) if length else 0)


def _refuse(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = json.dumps({"error": {"message": text}}).encode()
    kind = f"content-type: application/json\r\ncontent-length: {len(body)}"
    head = f"HTTP/1.1 {status} {STATUS[status]}\r\n{kind}\r\n\r\n"
    writer.write(head.encode() + body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
