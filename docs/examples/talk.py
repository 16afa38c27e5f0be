"""Ask a question from a sound file, keep the answer: talk.py http://localhost:8000 question.wav answer.wav"""

import asyncio, json, sys, httpx
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.contrib.media import MediaPlayer, MediaRecorder


async def talk(server: str, question: str, answer: str) -> None:
    peer, recorder, over = RTCPeerConnection(), MediaRecorder(answer), asyncio.Event()
    peer.addTrack(MediaPlayer(question).audio)
    peer.on("track", recorder.addTrack)

    def hear(text: str) -> None:
        event = json.loads(text)
        print(event.get("transcript", ""), end="", flush=True)
        if event["type"] == "output_audio_buffer.stopped":
            over.set()

    peer.createDataChannel("oai-events").on("message", hear)
    await peer.setLocalDescription(await peer.createOffer())
    headers = {"content-type": "application/sdp", "authorization": "Bearer your-key"}
    body = peer.localDescription.sdp
    reply = httpx.post(f"{server}/v1/realtime/calls", content=body, headers=headers, timeout=30)
    await peer.setRemoteDescription(RTCSessionDescription(reply.raise_for_status().text, "answer"))
    await recorder.start()
    await asyncio.wait_for(over.wait(), 60)
    await recorder.stop()
    await peer.close()


asyncio.run(talk(*sys.argv[1:]))
