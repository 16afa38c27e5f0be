# Load the engine of slots through its smallest HTTP route: OUT is where results go; arguments are options of bench speech.
set -u
options=${ENGINE_OPTIONS:-'{"random":true}'}
python3 -m voice_agent.bench.speech_route --port 8090 --options "$options" > "$OUT/route.txt" 2>&1 &
route=$!
for i in $(seq 150); do grep -q "^ready" "$OUT/route.txt" && break; kill -0 $route 2>/dev/null || break; sleep 1; done
cut -c1-600 "$OUT/route.txt"
timeout 300 python3 -m voice_agent.bench speech --url http://127.0.0.1:8090 --force-lengths --length-field max_new_tokens \
  --json "$OUT/speech.json" --note "${NOTE:-random 1.7B, one H200}" "$@" 2>&1 | tee "$OUT/speech.txt"
kill $route; sleep 1; tail -20 "$OUT/route.txt" | cut -c1-400
