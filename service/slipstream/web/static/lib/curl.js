// Requests as commands for a shell. What stands in them was said by others: nothing of it may be run.

// Characters that a terminal obeys or that no screen shows; within JSON they can be written as escapes.
const UNSEEN = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text as one word of a POSIX shell. */
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The absolute address of a path of this sidecar. */
export function absolute(address) {
  return new URL(address, document.baseURI).href;
}

/** A read of the control API, with the key in a variable of the shell where the sidecar asks for one. */
export function readCommand(address, { key = false, headers = {} } = {}) {
  const named = Object.entries(headers).map(([name, value]) => ` \\\n  -H ${quoted(`${name}: ${value}`)}`).join("");
  return `curl ${quoted(absolute(address))}${key ? ' \\\n  -H "x-slipstream-key: $SLIPSTREAM_API_KEY"' : ""}${named}`;
}

const WAYS = {
  chat: { path: "v1/chat/completions", headers: ['-H "authorization: Bearer $OPENAI_API_KEY"'] },
  responses: { path: "v1/responses", headers: ['-H "authorization: Bearer $OPENAI_API_KEY"'] },
  messages: { path: "v1/messages", headers: ['-H "x-api-key: $ANTHROPIC_API_KEY"', "-H 'anthropic-version: 2023-06-01'"] },
};

/**
 * The request of an agent, to be sent again through this sidecar. The body stands in a here-document, because a word of
 * a command may not be longer than 128 KiB; its lines are JSON's, so that none of them can end it.
 */
export function productionCommand(dialect, body) {
  const way = WAYS[dialect] || WAYS.chat;
  const json = JSON.stringify(body, null, 2).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const parts = [`curl ${quoted(absolute(way.path))}`, ...way.headers, "-H 'content-type: application/json'", "--data-binary @- <<'END'"];
  return `${parts.join(" \\\n  ")}\n${json}\nEND\n`;
}
