// Answers held against openapi.json, as the gateway serves it.
//
//   const document = await documentOf(gateway);
//   document.check("POST", "/admin/plans", answer);   // {status, headers, text, body}; fails on what the document does not tell
//   document.driven.get("createPlan")                 // the statuses seen so far: Set {201}
//
// `gateway.keepToDocument()` checks every answer that `gateway.call` reads from then on.
import assert from "node:assert/strict";
import addFormats from "ajv-formats";
import Ajv2020 from "ajv/dist/2020.js";

/** Headers of the gateway's own: an answer may carry one only where the document says so. */
const own = /^(x-)?ratelimit|^anthropic-ratelimit-|^retry-after|^x-sluice-|^x-should-retry$|^etag$|^location$|^www-authenticate$|^preference-applied$|request-id$/;
const base = "gateway:openapi.json";

export async function documentOf(gateway) {
  const answer = await gateway.fetch("/openapi.json");
  assert.equal(answer.status, 200);
  return new Document(await answer.json());
}

export class Document {
  /** Statuses that were checked, by operation. */
  driven = new Map();
  #validators = new Map();

  constructor(json) {
    this.json = json;
    this.operations = Object.entries(json.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ ...operation, path, method: method.toUpperCase(), pointer: `#/paths/${escaped(path)}/${method}` })),
    );
    this.paths = Object.keys(json.paths).map((path) => ({ path, matches: new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`) }));
    // Strict, so that a keyword nobody knows is an error; those of the document around the schemas are known.
    this.ajv = new Ajv2020({ allErrors: true, strictRequired: false, strictTypes: false, keywords: Object.keys(json) });
    addFormats(this.ajv);
    this.ajv.addSchema({ $id: base, ...json, $schema: undefined }, base, false, false);
  }

  /** The schemas that are no JSON Schema of 2020-12, each with what is wrong with it. */
  brokenSchemas() {
    return Object.entries(this.json.components.schemas).flatMap(([name, schema]) => (this.ajv.validateSchema(schema) ? [] : [`${name}: ${this.ajv.errorsText()}`]));
  }

  /** Fails if an answer is none that the document tells of. What is not in it at all is somebody else's answer. */
  check(method, url, answer) {
    const path = new URL(url, "http://gateway").pathname;
    const known = this.paths.find((one) => one.path === path) ?? this.paths.find((one) => one.matches.test(path));
    if (!known) return;
    const operation = this.operations.find((one) => one.path === known.path && one.method === method);
    const place = `${method} ${known.path} ${answer.status}`;
    if (!operation) return this.#checkWrongMethod(place, answer);
    assert.ok(String(answer.status) in operation.responses, `${place} is not in the document: ${answer.text}`);
    const [response, pointer] = this.#follow(operation.responses[answer.status], `${operation.pointer}/responses/${answer.status}`);
    this.#checkHeaders(place, response, pointer, answer.headers);
    this.#checkBody(place, response, pointer, answer);
    const seen = this.driven.get(operation.operationId) ?? new Set();
    this.driven.set(operation.operationId, seen.add(answer.status));
  }

  /** `HEAD` and `OPTIONS` are answered as HTTP has them. */
  #checkWrongMethod(place, answer) {
    if (/^(HEAD|OPTIONS) /.test(place) || [401, 403, 429].includes(answer.status)) return;
    assert.equal(answer.status, 405, `${place}: the document knows no such method`);
    assert.ok(answer.headers.get("allow"), `${place}: no Allow`);
  }

  #checkHeaders(place, { headers = {} }, pointer, received) {
    for (const [name, reference] of Object.entries(headers)) {
      const [header, at] = this.#follow(reference, `${pointer}/headers/${escaped(name)}`);
      const value = received.get(name);
      if (value === null) assert.ok(!header.required, `${place}: the header ${name} is missing`);
      else this.#validate(`${place}: header ${name}`, `${at}/schema`, value);
    }
    const documented = Object.keys(headers).map((name) => name.toLowerCase());
    for (const name of received.keys()) assert.ok(!own.test(name) || documented.includes(name), `${place}: the header ${name} is not in the document`);
  }

  #checkBody(place, { content }, pointer, { headers, text, body }) {
    if (!content) return assert.equal(text, "", `${place} has a body`);
    const type = headers.get("content-type")?.split(";")[0].trim();
    assert.ok(type in content, `${place}: the content type ${type} is not in the document`);
    if (type === "text/event-stream") return assert.match(text, /^(event|data):/m, `${place}: no event`);
    const json = type === "application/json";
    if (json) assert.notEqual(body, undefined, `${place}: no JSON: ${text}`);
    this.#validate(place, `${pointer}/content/${escaped(type)}/schema`, json ? body : text);
  }

  #validate(place, pointer, value) {
    const validator = this.#validators.get(pointer) ?? this.ajv.compile({ $ref: `${base}${pointer}` });
    this.#validators.set(pointer, validator);
    assert.ok(validator(value), `${place}: ${this.ajv.errorsText(validator.errors)}: ${JSON.stringify(value)}`);
  }

  /** What stands at a place, or where that place refers to; and its pointer. */
  #follow(value, pointer) {
    if (!value.$ref) return [value, pointer];
    const parts = value.$ref.slice(2).split("/");
    return [parts.reduce((at, part) => at[part], this.json), value.$ref];
  }
}

/** A name as a part of a pointer inside a URI. */
const escaped = (name) => encodeURIComponent(name.replaceAll("~", "~0").replaceAll("/", "~1"));
