# The whole measurement of the speech engine on one GPU in one go, about 7 minutes: stages, loads over HTTP, the fused codec.
# Everything goes to $OUT as it is found, so a run that is cut leaves what it had.
set -u
port=8090
began=$SECONDS
stage() { timeout "$1" python3 -m voice_agent.bench.speech_stages --no-sweep --parts "$2" --json "$OUT/$3.json" > "$OUT/$3.txt" 2> "$OUT/$3.err"; echo "== $3 ($((SECONDS - began)) s)"; cat "$OUT/$3.txt"; tail -4 "$OUT/$3.err"; }
load() { name=$1; shift; timeout 200 python3 -m voice_agent.bench speech --url http://127.0.0.1:$port --force-lengths --length-field max_new_tokens \
  --warm-up 4 --pause 1 --seeds 0 --json "$OUT/$name.json" --note "random 1.7B, one H200, $options" "$@" > "$OUT/$name.txt" 2>&1
  echo "== $name ($((SECONDS - began)) s)"; grep -v "seed " "$OUT/$name.txt" | head -12; }

stage 85 check,frames,overlap stages
stage 70 fused fused
# which graphs suit company is measured, not believed: PDL only if a frame and a codec launch beside it take less with it
options=$(python3 - "$OUT/stages.json" "$OUT/fused.json" <<'PY'
import json, sys
try:
    told = json.load(open(sys.argv[1]))
    beside, frames = told["overlap"], told["frames"]
    cost = {pdl: sum(v[2] + v[3] for k, v in beside.items() if k.endswith(f"pdl={pdl}") and k.startswith(("B=1 ", "B=8 "))) for pdl in (False, True)}
    right = all(v["error"] < 0.1 for k, v in frames.items())
    pdl = right and 0 < cost[True] < 0.95 * cost[False]
except (OSError, ValueError, KeyError) as error:
    print(error, file=sys.stderr)
    pdl = False
try:  # the fused codec only if it is as right as the plain one, and faster where it matters
    fused = json.load(open(sys.argv[2]))["fused"]
    right = fused["error"]["fused"] < 1.3 * fused["error"]["torch bf16"]
    fused_codec = right and fused["1x1"] < 1.8 and fused["2x1"] < 1.9 and fused["16x8"] < 12.5 and fused["8x4"] < 6.3
except (OSError, ValueError, KeyError) as error:
    print(error, file=sys.stderr)
    fused_codec = False
print(json.dumps({"random": True, "pdl": pdl, "fused_codec": fused_codec}))
PY
)
echo "engine options: $options"
start() {
  python3 -m voice_agent.bench.speech_route --port $port --options "$options" > "$OUT/route.txt" 2>&1 &
  route=$!
  for i in $(seq "$1"); do grep -q "^ready" "$OUT/route.txt" && return 0; kill -0 $route 2>/dev/null || return 1; sleep 1; done
  return 1
}
start 90 || { tail -5 "$OUT/route.txt" | cut -c1-300; cp "$OUT/route.txt" "$OUT/route-first.txt"; kill $route 2>/dev/null; sleep 2
  options='{"random": true}'; echo "again with $options"; start 100; }
echo "== ready ($((SECONDS - began)) s)"; grep ready "$OUT/route.txt" | grep -o '"slots".*'; tail -3 "$OUT/route.txt" | cut -c1-200
nvidia-smi --query-gpu=memory.used --format=csv > "$OUT/memory.txt"
load curve --rps 1 10 30 40 50 60 --seconds 18
load forty --rps 40 --seeds 0 1 2 --seconds 26
load closed --streams 64 --seconds 15
load quality --rps 10 --seconds 16 --quality-jobs 8
nvidia-smi --query-gpu=memory.used --format=csv >> "$OUT/memory.txt"; cat "$OUT/memory.txt"
kill $route; sleep 2; tail -5 "$OUT/route.txt" | cut -c1-200
