import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { dayOf, speak, whenOf, words } from "../src/words/app.ts";
import * as german from "../src/words/de.ts";
import { deApp } from "../src/words/de-app.ts";
import * as english from "../src/words/en.ts";
import { enApp } from "../src/words/en-app.ts";

const en = { ...english.en, ...enApp };
const de = { ...german.de, ...deApp };

const SOURCES = ["app/src", "widget/src"].map((folder) => join(process.cwd(), "..", folder));

test("every catalogue has every word, and none is empty", () => {
  assert.deepEqual(Object.keys(german.de).sort(), Object.keys(english.en).sort());
  assert.deepEqual(Object.keys(de).sort(), Object.keys(en).sort());
  assert.deepEqual(Object.keys(de.faults).sort(), Object.keys(en.faults).sort());
  for (const catalogue of [en, de]) {
    for (const [name, word] of Object.entries(catalogue)) {
      if (typeof word === "string") assert.ok(word.trim(), name);
    }
  }
});

test("what differs by language is translated", () => {
  const same = Object.entries(en).filter(
    ([name, word]) => typeof word === "string" && word === de[name as keyof typeof de],
  );
  const international = ["chats", "chatsFound", "unnamedChat", "admin"];
  assert.deepEqual(same.map(([name]) => name).sort(), international.sort());
});

test("every word is used", () => {
  const code = SOURCES.flatMap((folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && !entry.name.startsWith("de."))
      .map((entry) => readFileSync(join(entry.parentPath ?? entry.path, entry.name), "utf8")),
  ).join("\n");
  const unused = Object.keys(en).filter(
    (name) => !new RegExp(`(say|value)\\s*\\.${name}\\b`).test(code),
  );
  assert.deepEqual(unused, []);
});

test("numbers are said rightly", () => {
  assert.equal(en.unread(1), "1 unread message");
  assert.equal(en.unread(2), "2 unread messages");
  assert.equal(de.members(1), "1 Mitglied");
  assert.equal(de.logOutUnsent(1), "Noch nicht gesendet und dann verloren: 1 Nachricht.");
  assert.equal(en.typing(["Ann"]), "Ann is typing…");
  assert.equal(en.typing(["Ann", "Ben", "Cleo"]), "Several people are typing…");
});

test("days have the names that people use", async () => {
  const now = new Date(2030, 4, 6, 12);
  const before = (days: number) => new Date(2030, 4, 6 - days, 23);
  assert.equal(dayOf(before(0), now), "Today");
  assert.equal(dayOf(before(1), now), "Yesterday");
  assert.equal(dayOf(before(3), now), "Friday");
  assert.match(dayOf(before(30), now), /April/);
  assert.match(dayOf(before(400), now), /2029/);
  assert.match(whenOf(now, now), /12/);
  // A future time that is not today has its date as well: "muted until".
  assert.match(whenOf(before(-7), now), /13.*11/);
  await speak("de");
  assert.equal(dayOf(before(0), now), "Heute");
  assert.equal(words.value.send, "Senden");
  await speak("en");
});
