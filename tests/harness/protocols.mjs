// What a provider answers on each path: `whole(request, behaviour)` for one JSON body, `events(…)` for a stream.

/** The protocol spoken on a path; the base URL may or may not end in /v1. */
export function protocolOf({ path }) {
  return protocols[path.replace(/^\/v1\//, "/")] ?? (path.replace(/^\/v1\//, "/").startsWith("/models/") ? model : echo);
}

const created = 1_780_000_000;
const defaultUsage = { prompt_tokens: 9, completion_tokens: 12 };

const text = ({ content = "Hello from upstream." }) => (Array.isArray(content) ? content.join("") : content);
const textPieces = ({ content = ["Hello", " from", " upstream."] }) => (Array.isArray(content) ? content : [content]);

/** The usage to show: as told, with `total_tokens` unless told otherwise; undefined where there is none. */
function openAiUsage({ usage = defaultUsage }) {
  if (usage === null) return undefined;
  const { prompt_tokens = 0, completion_tokens = 0 } = usage;
  return { ...usage, ...(!("total_tokens" in usage) && { total_tokens: prompt_tokens + completion_tokens }) };
}

const chat = {
  done: "data: [DONE]\n\n",
  error: { error: { message: "The server had an error", type: "server_error", param: null, code: null } },
  whole: (request, behaviour) => ({
    id: "chatcmpl-upstream",
    object: "chat.completion",
    created,
    model: request.json?.model,
    choices: [{ index: 0, message: { role: "assistant", content: text(behaviour), refusal: null }, logprobs: null, finish_reason: behaviour.finish ?? "stop" }],
    usage: openAiUsage(behaviour),
  }),
  events: (request, behaviour) =>
    choiceEvents(request, behaviour, "chat.completion.chunk", [
      { delta: { role: "assistant", content: "" }, finish_reason: null },
      ...textPieces(behaviour).map((content) => ({ delta: { content }, finish_reason: null })),
      { delta: {}, finish_reason: behaviour.finish ?? "stop" },
    ]),
};

const completion = {
  done: chat.done,
  error: chat.error,
  whole: (request, behaviour) => ({
    id: "cmpl-upstream",
    object: "text_completion",
    created,
    model: request.json?.model,
    choices: [{ index: 0, text: text(behaviour), logprobs: null, finish_reason: behaviour.finish ?? "stop" }],
    usage: openAiUsage(behaviour),
  }),
  events: (request, behaviour) =>
    choiceEvents(request, behaviour, "text_completion", [
      ...textPieces(behaviour).map((piece) => ({ text: piece, finish_reason: null })),
      { text: "", finish_reason: behaviour.finish ?? "stop" },
    ]),
};

/** OpenAI's chunks, with the usage in the place that was asked for. */
function choiceEvents(request, behaviour, object, choices) {
  const { usageIn = "last" } = behaviour;
  const usage = openAiUsage(behaviour);
  const asked = request.json?.stream_options?.include_usage === true;
  const base = { id: "chatcmpl-upstream", object, created, model: request.json?.model };
  const chunks = choices.map((choice) => ({ ...base, choices: [{ index: 0, ...choice }], ...(asked && usageIn === "last" && { usage: null }) }));
  if (!usage) return chunks;
  if (usageIn === "finish") chunks.at(-1).usage = usage;
  if (usageIn === "every") chunks.forEach((chunk, i) => (chunk.usage = share(usage, (i + 1) / chunks.length)));
  if (usageIn === "empty-delta") chunks.push({ ...base, choices: [{ index: 0, delta: {}, finish_reason: null }], usage });
  if (usageIn === "always-last" || (usageIn === "last" && asked)) chunks.push({ ...base, choices: [], usage });
  return chunks;
}

/** Numbers that grow with the stream and end at the whole usage. */
function share(usage, part) {
  const completion_tokens = Math.ceil((usage.completion_tokens ?? 0) * part);
  const missing = (usage.completion_tokens ?? 0) - completion_tokens;
  return { ...usage, completion_tokens, total_tokens: usage.total_tokens - missing };
}

const embeddings = {
  whole: (request, behaviour) => ({
    object: "list",
    data: [request.json?.input ?? ""].flat().map((_, index) => ({ object: "embedding", index, embedding: [0.1, -0.2, 0.3] })),
    model: request.json?.model,
    usage: openAiUsage({ usage: behaviour.usage === undefined ? { prompt_tokens: 9 } : behaviour.usage }),
  }),
};

const responses = {
  error: { event: "error", data: { type: "error", code: "server_error", message: "The server had an error", param: null } },
  whole: (request, behaviour) => responseObject(request, behaviour, "completed"),
  events: (request, behaviour) => {
    const item = { id: "msg_upstream", type: "message", status: "in_progress", role: "assistant", content: [] };
    const at = { item_id: item.id, output_index: 0, content_index: 0 };
    const part = (words) => ({ type: "output_text", text: words, annotations: [] });
    const events = [
      { type: "response.created", response: { ...responseObject(request, behaviour, "in_progress"), output: [], usage: null } },
      { type: "response.output_item.added", output_index: 0, item },
      { type: "response.content_part.added", ...at, part: part("") },
      ...textPieces(behaviour).map((delta) => ({ type: "response.output_text.delta", ...at, delta })),
      { type: "response.output_text.done", ...at, text: text(behaviour) },
      { type: "response.content_part.done", ...at, part: part(text(behaviour)) },
      { type: "response.output_item.done", output_index: 0, item: { ...item, status: "completed", content: [part(text(behaviour))] } },
      { type: "response.completed", response: responseObject(request, behaviour, "completed") },
    ];
    return events.map((data, sequence_number) => ({ event: data.type, data: { ...data, sequence_number } }));
  },
};

function responseObject(request, behaviour, status) {
  const usage = openAiUsage(behaviour);
  return {
    id: "resp_upstream",
    object: "response",
    created_at: created,
    status,
    error: null,
    incomplete_details: null,
    model: request.json?.model,
    output: [{ id: "msg_upstream", type: "message", status: "completed", role: "assistant", content: [{ type: "output_text", text: text(behaviour), annotations: [] }] }],
    parallel_tool_calls: true,
    tool_choice: "auto",
    tools: [],
    usage: usage && {
      input_tokens: usage.prompt_tokens ?? 0,
      output_tokens: usage.completion_tokens ?? 0,
      total_tokens: usage.total_tokens,
      ...usage.responses,
    },
  };
}

/** Anthropic's names for the same numbers; fields of its own (cache_read_input_tokens, …) go through. */
function anthropicUsage({ usage = defaultUsage }) {
  if (usage === null) return undefined;
  const { prompt_tokens, completion_tokens, total_tokens: _, ...rest } = usage;
  return { input_tokens: prompt_tokens ?? 0, output_tokens: completion_tokens ?? 0, ...rest };
}

const anthropicReasons = { stop: "end_turn", length: "max_tokens", tool_calls: "tool_use" };
const stopReason = ({ finish = "stop" }) => anthropicReasons[finish] ?? finish;

function message(request, behaviour) {
  return {
    id: "msg_upstream",
    type: "message",
    role: "assistant",
    model: request.json?.model,
    content: [{ type: "text", text: text(behaviour) }],
    stop_reason: stopReason(behaviour),
    stop_sequence: null,
    usage: anthropicUsage(behaviour),
  };
}

const messages = {
  error: { event: "error", data: { type: "error", error: { type: "overloaded_error", message: "Overloaded" } } },
  whole: message,
  events: (request, behaviour) => {
    const usage = anthropicUsage(behaviour);
    const start = { ...message(request, behaviour), content: [], stop_reason: null, usage: usage && { ...usage, output_tokens: 1 } };
    const events = [
      { type: "message_start", message: start },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "ping" },
      ...textPieces(behaviour).map((piece) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: piece } })),
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: stopReason(behaviour), stop_sequence: null }, ...(usage && { usage: { output_tokens: usage.output_tokens } }) },
      { type: "message_stop" },
    ];
    return events.map((data) => ({ event: data.type, data }));
  },
};

const countTokens = { whole: (_, behaviour) => ({ input_tokens: behaviour.usage?.prompt_tokens ?? defaultUsage.prompt_tokens }) };

const modelObject = (id) => ({ id, object: "model", created, owned_by: "upstream" });
const models = { whole: () => ({ object: "list", data: ["m-small", "m-large"].map(modelObject) }) };
const model = { whole: (request) => modelObject(decodeURIComponent(request.path.split("/").pop())) };

/** What a protected service that only repeats would say. */
const echo = { whole: ({ method, path, query, headers, body }) => ({ method, path, query, headers, body }) };

const protocols = {
  "/chat/completions": chat,
  "/completions": completion,
  "/embeddings": embeddings,
  "/responses": responses,
  "/messages": messages,
  "/messages/count_tokens": countTokens,
  "/models": models,
};
