import assert from "node:assert/strict";
import { test } from "node:test";
import { hueOf, initialsOf, isJumbo, lineOf, mentionedIn, partsOf } from "../src/model/text.ts";

const ANN = { userId: "u1", name: "Ann" };
const ANN_LEE = { userId: "u2", name: "Ann Lee" };

test("parts together are the text, whatever is in it", () => {
  for (const text of [
    "",
    "plain",
    "see https://example.org/a_(b) and http://x.test/?q=1.",
    "@Ann @Ann Lee @nobody @",
    "javascript:alert(1) https:// http://[ https://example.org…",
    "<b>not bold</b> & \u202eright to left",
  ]) {
    const parts = partsOf(text, [ANN, ANN_LEE]);
    assert.equal(parts.map((part) => part.text).join(""), text);
  }
});

test("links end where the sentence goes on", () => {
  const links = (text: string) =>
    partsOf(text).flatMap((part) => (part.kind === "link" ? [part.text] : []));
  assert.deepEqual(links("look (https://example.org/a)."), ["https://example.org/a"]);
  assert.deepEqual(links("https://example.org/Tide_(sea), yes"), [
    "https://example.org/Tide_(sea)",
  ]);
  assert.deepEqual(links("https://a.test, http://b.test!"), ["https://a.test", "http://b.test"]);
});

test("only pages become links", () => {
  for (const text of [
    "javascript:alert(1)",
    "data:text/html,x",
    "ftp://a.test",
    "https://",
    "a.b",
  ]) {
    assert.deepEqual(
      partsOf(text).map((part) => part.kind),
      ["plain"],
    );
  }
});

test("the longest name is meant", () => {
  const named = partsOf("@Ann Lee and @Ann", [ANN, ANN_LEE]);
  assert.deepEqual(
    named.map((part) => (part.kind === "mention" ? part.userId : part.text)),
    ["u2", " and ", "u1"],
  );
  assert.deepEqual(mentionedIn("@Ann @Ann Lee @Ann", [ANN, ANN_LEE]), ["u1", "u2"]);
  assert.deepEqual(mentionedIn("mail@Annex.test https://x.test/@Ann", [ANN_LEE]), []);
});

test("a few emoji and nothing else are large", () => {
  for (const text of ["👍", "🎉🎉🎉", "👩‍👩‍👧‍👦", "❤️", "🇩🇪 🇫🇷"]) assert.ok(isJumbo(text), text);
  for (const text of ["", " ", "ok 👍", "🎉🎉🎉🎉", "42", "#", "1️⃣"])
    assert.ok(!isJumbo(text), text);
});

test("a line is one, and not longer than it may be", () => {
  assert.equal(lineOf("a\n\n b\tc "), "a b c");
  assert.equal(lineOf("👍".repeat(9), 5), `${"👍".repeat(4)}…`);
});

test("initials are letters, not halves of them", () => {
  assert.equal(initialsOf("Ann Lee"), "AL");
  assert.equal(initialsOf("ann"), "A");
  assert.equal(initialsOf("ann.van-dyke"), "AD");
  assert.equal(initialsOf("  "), "?");
  assert.equal(initialsOf("🦊 fox"), "🦊F");
});

test("a colour stays", () => {
  assert.equal(hueOf("user_1", 8), hueOf("user_1", 8));
  const hues = new Set(Array.from({ length: 200 }, (_, at) => hueOf(`user_${at}`, 8)));
  assert.equal(hues.size, 8);
});
