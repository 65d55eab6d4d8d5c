// Send a prompt and show its events, also across a restart of the daemon:  node node_client.mjs BACKEND PROMPT
// This program chooses the session's id and the prompt's key, so that a repeated request does nothing twice.
import net from "node:net";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const [backend, prompt] = process.argv.slice(2);
const path = process.env.CLISUP_SOCKET || execFileSync("clisup", ["socket"], { encoding: "utf8" }).trimEnd();
const session_id = randomUUID(), key = randomUUID();
const tools = new Set(["Read", "Bash"]); // allowed without a question
const unheard = new Map(); // answers that the daemon has not confirmed
let after_seq = 0; // cursor: the last seq received

const show = {
  content_delta: (event) => event.kind === "text" && process.stdout.write(event.text),
  tool_use: (event) => console.log(`\n[${event.name} ${JSON.stringify(event.input)}]`),
  tool_result: (event) => console.log(`[${event.is_error ? "failed" : "ok"}: ${event.content.slice(0, 60)}]`),
  approval_requested: ({ approval_id, tool_name }, answer) => {
    unheard.set(approval_id, tools.has(tool_name) ? "allow" : "deny");
    answer(unheard.get(approval_id), approval_id);
  },
  approval_resolved: ({ approval_id }) => unheard.delete(approval_id),
  turn_completed: (event) => console.log(`\n[${event.outcome}, ${event.usage.output_tokens} tokens]`),
}; // other types are ignored

async function attempt() {
  const socket = net.connect(path).setEncoding("utf8");
  const answers = new Map();
  let last = 0;
  const call = (method, params) => {
    socket.write(JSON.stringify({ jsonrpc: "2.0", id: ++last, method, params }) + "\n");
    return new Promise((resolve) => answers.set(last, resolve));
  };
  call("session/new", { backend, cwd: process.cwd(), session_id })
    .then(() => unheard.forEach(answer)) // answers of the previous connection
    .then(() => call("session/subscribe", { session_id, after_seq }))
    .then(() => call("session/prompt", { session_id, prompt, key }));
  const answer = (decision, approval_id) => call("approval/respond", { session_id, approval_id, decision });
  let rest = "";
  for await (const chunk of socket) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const { method, id, params, result, error } of lines.map((line) => JSON.parse(line))) {
      if (error && !error.data.retryable && !error.data.kind.startsWith("approval_")) throw new Error(error.message);
      if (error && !id) return; // the daemon closes the connection
      if (!method && !error) answers.get(id)?.(result);
      if (method !== "session/event") continue;
      after_seq = params.seq;
      show[params.type]?.(params, answer);
      if (params.type === "turn_completed") return socket.destroy(), params;
    }
  }
}

for (let patience = 300; patience > 0; patience--) { // gives up after half a minute without an event
  const end = await attempt().catch((error) => { if (!error.code) throw error; }); // an error with a code: no daemon listens
  if (end) process.exit(end.outcome === "completed" ? 0 : 1);
  if (patience === 290) console.error(`no answer at ${path}: trying for half a minute`);
  await sleep(100);
}
console.error("the daemon does not come back"), process.exit(3);
