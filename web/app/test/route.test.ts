// Which view an address names.

import "./page.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { chatHref, readRoute } from "../src/model/route.ts";

test("a route is read as it was written", () => {
  for (const id of ["chat_1", "a/b", "50 %", "é"])
    assert.deepEqual(
      [readRoute(chatHref(id)).chatId, readRoute(chatHref(id, "about")).panel],
      [id, "about"],
    );
  assert.ok(readRoute("#/settings").settings);
  assert.ok(readRoute("#/new").isNew);
});

test("a damaged address is no chat, and keeps nothing from starting", () => {
  for (const hash of ["#/chat/%", "#/chat/%ff/about", "#/chat/%zz"])
    assert.deepEqual(readRoute(hash), readRoute(""));
});
