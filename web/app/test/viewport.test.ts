// The list as a browser lays it out, without a browser: rows have other heights than the estimate,
// and visible rows must not move.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Viewport } from "../src/model/viewport.ts";

const VIEW_PX = 800;
const GUESS_PX = 50;

class Page {
  readonly viewport = new Viewport(() => GUESS_PX);
  heights: (key: string) => number;
  scrollTop = 0;
  isStart = false;
  /** How often the list itself has moved the scroll position. */
  moves = 0;

  constructor(heights: (key: string) => number) {
    this.heights = heights;
  }

  get scrollHeight(): number {
    const { viewport } = this;
    return viewport.top + this.#sum(viewport.first, viewport.end) + viewport.bottom;
  }

  replace(keys: readonly string[]): void {
    this.viewport.replace(keys);
    this.layOut();
  }

  layOut(): void {
    const { viewport } = this;
    do {
      const keys = viewport.keys.slice(viewport.first, viewport.end);
      const move = viewport.settle(keys.map(this.heights), this.scrollTop, this.isStart);
      if (move) this.moves++;
      this.scrollTop += move;
      this.scrollTop = Math.max(0, Math.min(this.scrollTop, this.scrollHeight - VIEW_PX));
    } while (viewport.look(this.scrollTop, VIEW_PX));
  }

  scroll(px: number): void {
    this.scrollTop = Math.max(0, Math.min(this.scrollTop + px, this.scrollHeight - VIEW_PX));
    this.viewport.look(this.scrollTop, VIEW_PX);
    this.layOut();
  }

  /** The visible rows: their keys, and their positions in the window. */
  seen(): Map<string, number> {
    const found = new Map<string, number>();
    let at = this.viewport.top - this.scrollTop;
    for (const key of this.viewport.keys.slice(this.viewport.first, this.viewport.end)) {
      const height = this.heights(key);
      if (at + height > 0 && at < VIEW_PX) found.set(key, at);
      at += height;
    }
    return found;
  }

  #sum(from: number, to: number): number {
    return this.viewport.keys.slice(from, to).reduce((sum, key) => sum + this.heights(key), 0);
  }
}

const keys = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => String(from + at));
/** Heights that differ from the estimate. */
const uneven = (key: string) => 20 + ((Number(key) * 7919) % 230);

function assertStill(before: Map<string, number>, after: Map<string, number>, moved = 0): void {
  const both = [...before].filter(([key]) => after.has(key));
  assert.ok(both.length > 0, "nothing of what was seen is seen");
  for (const [key, at] of both) assert.ok(Math.abs(after.get(key)! - (at - moved)) < 0.01, key);
}

function pageAtEnd(count: number, first = 1000): Page {
  const page = new Page(uneven);
  page.viewport.replace(keys(first, first + count));
  page.viewport.show(count - 1, VIEW_PX);
  page.layOut();
  // As a list that stays at its end does.
  for (let turn = 0; turn < 3; turn++) {
    page.scrollTop = page.scrollHeight - VIEW_PX;
    page.layOut();
  }
  return page;
}

test("only what is near the window is rendered", () => {
  const page = pageAtEnd(2000);
  assert.ok(page.viewport.end - page.viewport.first < 80);
  assert.equal(page.viewport.end, 2000);
});

test("scrolling moves what is seen by as much as was scrolled, and by nothing else", () => {
  const page = pageAtEnd(2000);
  for (const px of [-300, -700, 250, -1500, -40, 900, -3000]) {
    const before = page.seen();
    const top = page.scrollTop;
    page.scroll(px);
    if (Math.abs(px) < VIEW_PX) assertStill(before, page.seen(), px);
    assert.ok(page.moves > 0 || page.scrollTop === top + px);
  }
});

test("what is looked at stays when older rows come", () => {
  const page = pageAtEnd(200, 1000);
  page.scroll(-3000);
  let first = 1000;
  for (let load = 0; load < 50; load++) {
    const before = page.seen();
    first -= 10;
    page.replace(keys(first, 1200));
    assertStill(before, page.seen());
  }
});

test("the scroll position is moved by the list rarely", () => {
  const page = pageAtEnd(100, 100_000);
  let first = 100_000;
  page.moves = 0;
  for (let step = 0; step < 1000; step++) {
    page.scroll(-100);
    if (page.viewport.first < 30) {
      first -= 100;
      page.replace(keys(first, Math.min(first + 2000, 100_100)));
    }
  }
  assert.ok(page.moves < 20, `${page.moves} moves on 100000 px`);
});

test("what is looked at stays when a row above it changes its height", () => {
  let extra = 0;
  const page = pageAtEnd(300);
  page.heights = (key) => uneven(key) + (key === "1290" ? extra : 0);
  page.scroll(-200);
  const before = page.seen();
  assert.ok(!before.has("1290"));
  extra = 500;
  page.layOut();
  assertStill(before, page.seen());
});

test("what is looked at stays when rows above it go", () => {
  const page = pageAtEnd(300);
  page.scroll(-500);
  const before = page.seen();
  page.replace(keys(1100, 1300));
  assertStill(before, page.seen());
});

test("at the start there is no space above", () => {
  const page = pageAtEnd(60);
  page.isStart = true;
  while (page.scrollTop > 0) page.scroll(-400);
  assert.equal(page.viewport.first, 0);
  assert.equal(page.viewport.top, 0);
  assert.equal(page.seen().get("1000"), 0);
});

test("at the end the last row ends with the window", () => {
  const page = pageAtEnd(500);
  const last = page.seen().get("1499")!;
  assert.equal(last + uneven("1499"), VIEW_PX);
});

test("a drag far away renders what is there", () => {
  const page = pageAtEnd(2000);
  page.scroll(-60_000);
  assert.ok(page.seen().size > 0);
  assert.ok(page.viewport.end - page.viewport.first < 80);
});

test("other rows altogether begin anew", () => {
  const page = pageAtEnd(300);
  page.viewport.replace(keys(5000, 5100));
  page.viewport.show(50, VIEW_PX);
  const { first, end } = page.viewport;
  page.viewport.settle(keys(5000 + first, 5000 + end).map(uneven), page.scrollTop, false);
  page.scrollTop = page.viewport.offsetOf(50) - 100;
  page.layOut();
  assert.equal(Math.round(page.seen().get("5050")!), 100);
  assert.ok(page.seen().has("5050"));
});

test("the row at a place is found", () => {
  const page = pageAtEnd(300);
  const [key, at] = [...page.seen()][3]!;
  const { viewport } = page;
  assert.equal(viewport.keys[viewport.indexAt(page.scrollTop + at + 1)], key);
});
