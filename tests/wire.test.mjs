// Headers on their way from Rust to the platform: what two heads have in common is copied, and nothing else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { answer, headersOf, headersOfRequest } from "../js/wire.js";

const head = (headers) => headers.map(([name, value]) => `${name}\n${value}\n`).join("");
const plain = (headers) => head([...headers]);

const heads = [
  [["a", "1"], ["b", "2"]],
  [["a", "1"], ["b", "3"]],
  [["a", "4"], ["b", ""]],
  [["a", "1"], ["c", "2"]],
  [["a", "1"], ["b", "2"], ["c", "3"]],
  [["b", "5"], ["a", "6"]],
  [],
  [["a", "1"], ["b", "2"]],
];

for (const [what, made] of [["an answer's", (text) => answer(200, text, "").headers], ["a request's", (text) => new Headers(headersOfRequest(text))]]) {
  test(`${what} headers are those of its lines, whatever came before`, () => {
    for (const wanted of heads) {
      const got = [...made(head(wanted))].filter(([name]) => name !== "content-type");
      assert.deepEqual(got, [...headersOf(head(wanted))]);
    }
  });
}

test("a header that comes twice comes twice again", () => {
  for (const last of ["y", "z"]) assert.equal(headersOfRequest(head([["vary", "x"], ["vary", last]])).get("vary"), `x, ${last}`);
});

test("what is done to one answer is not done to the next", () => {
  const first = answer(200, head([["a", "1"]]), "");
  first.headers.set("a", "2");
  first.headers.set("b", "3");
  const second = answer(200, head([["a", "1"]]), "");
  assert.match(plain(second.headers), /^a\n1\n/);
  assert.equal(second.headers.get("b"), null);
});

test("a value that no header may have spoils no other answer", () => {
  const good = head([["x-one", "1"], ["x-two", "2"]]);
  answer(200, good, "");
  assert.throws(() => answer(200, head([["x-one", "3"], ["x-two", "\u0000"]]), ""));
  const { headers } = answer(200, good, "");
  assert.deepEqual([headers.get("x-one"), headers.get("x-two")], ["1", "2"]);
});
