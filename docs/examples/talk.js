// The shortest page that talks: <button>Talk</button> <script type="module" src="talk.js"></script>
const server = new URLSearchParams(location.search).get("server") ?? "http://localhost:8000";

/** @type {HTMLElement} */ (document.querySelector("button")).onclick = async () => {
  const peer = new RTCPeerConnection();
  const speaker = new Audio();
  peer.ontrack = ({ streams }) => ((speaker.srcObject = streams[0]), speaker.play());
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  peer.addTrack(microphone.getAudioTracks()[0], microphone);
  peer.createDataChannel("oai-events").onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "response.output_audio_transcript.done") document.body.append(event.transcript);
  };
  await peer.setLocalDescription();
  while (peer.iceGatheringState !== "complete") await new Promise((next) => setTimeout(next, 20));
  const headers = { "content-type": "application/sdp", authorization: "Bearer your-key" };
  const body = peer.localDescription?.sdp;
  const answer = await fetch(`${server}/v1/realtime/calls`, { method: "POST", headers, body });
  await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
};
