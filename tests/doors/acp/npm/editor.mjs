// An editor over the official TypeScript client, which a test drives line by line.
//
//   node editor.mjs SDK CWD DOOR...    SDK is the path of the package; DOOR is the command of `clisup acp`
//
// Each line of stdin is a command {"do": "new" | "load" | "prompt" | "cancel" | "allow" | "kill", ...}; what happens is
// printed as lines of JSON. A permission request waits for an "allow".
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, cwd, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(`${sdk}/dist/v1/stable/acp.js`).href);
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const waiting = [];

const door = spawn(command[0], command.slice(1), { cwd, stdio: ["pipe", "pipe", "inherit"] });
door.on("exit", (code, signal) => say({ exited: code ?? signal }));

const app = acp
  .client({ name: "clisup-test" })
  .onNotification(acp.methods.client.session.update, ({ params }) => say({ update: params.update }))
  .onRequest(acp.methods.client.session.requestPermission, ({ params, signal }) => {
    say({ asked: params.toolCall, options: params.options.map((option) => option.kind) });
    return new Promise((resolve) => {
      waiting.push(() => resolve({ outcome: { outcome: "selected", optionId: params.options[0].optionId } }));
      signal?.addEventListener("abort", () => {
        say({ withdrawn: params.toolCall.toolCallId });
        resolve({ outcome: { outcome: "cancelled" } });
      });
    });
  });

const stream = acp.ndJsonStream(Writable.toWeb(door.stdin), Readable.toWeb(door.stdout));

async function run(ctx, order) {
  const session = acp.methods.agent.session;
  switch (order.do) {
    case "new":
      return say({ opened: (await ctx.request(session.new, { cwd, mcpServers: [] })).sessionId });
    case "load":
      await ctx.request(session.load, { sessionId: order.session, cwd, mcpServers: [] });
      return say({ loaded: order.session });
    case "prompt": {
      const prompt = [{ type: "text", text: order.text }];
      const meta = order.key ? { _meta: { clisup: { key: order.key } } } : {};
      return say({ ended: (await ctx.request(session.prompt, { sessionId: order.session, prompt, ...meta })).stopReason });
    }
    case "list":
      return say({ listed: (await ctx.request(session.list, {})).sessions.map((one) => one.sessionId) });
    case "cancel":
      return ctx.notify(session.cancel, { sessionId: order.session });
    case "allow":
      return waiting.shift()();
    case "kill":
      return door.kill("SIGKILL");
  }
}

await app
  .connectWith(stream, async (ctx) => {
    const told = await ctx.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    say({ initialized: told.protocolVersion, agent: told.agentInfo?.name });
    for await (const line of createInterface({ input: process.stdin })) {
      run(ctx, JSON.parse(line)).catch((error) => say({ error: error.code ?? String(error), message: error.message }));
    }
  })
  .catch((error) => say({ closed: String(error) }));
door.kill();
