// Which rows of a long list are on the page, and where. Pure.
//
// Only a slice of the rows is rendered, between two empty spaces. Heights of rendered rows are
// measured, all others are estimated. Visible rows never move: when rows above them come, go or
// change their height, the space above shrinks or grows by as much. Only if that space is used up
// must the scroll position be moved, by a lot at once, so that it happens rarely.

/** How far beyond the window rows are rendered, and how far they are kept. */
const AHEAD_PX = 1000;
const KEPT_PX = 2000;
/** How much space is added above at once when it is used up. */
const HEADROOM_PX = 20_000;

interface Shown {
  readonly key: string;
  readonly height: number;
}

export class Viewport {
  /** The slice that is rendered: from `first`, up to and without `end`. */
  first = 0;
  end = 0;
  /** The heights of the spaces above and below it. */
  top = 0;
  bottom = 0;

  readonly #guess: (key: string) => number;
  #keys: readonly string[] = [];
  /** Measured heights by key. */
  readonly #heights = new Map<string, number>();
  /** The rows of the slice at the last layout. */
  #shown: readonly Shown[] = [];

  constructor(guess: (key: string) => number) {
    this.#guess = guess;
  }

  get keys(): readonly string[] {
    return this.#keys;
  }

  /** Replace the rows. Rendered rows that are still there stay rendered. */
  replace(keys: readonly string[]): void {
    const places = new Map(keys.map((key, place) => [key, place]));
    const kept = this.#shown.map(({ key }) => places.get(key)).filter((at) => at !== undefined);
    this.#keys = keys;
    if (kept.length) {
      this.first = Math.min(...kept);
      this.end = Math.max(...kept) + 1;
    } else {
      this.first = this.end = 0;
      this.#shown = [];
      this.top = 0;
    }
    if (this.#heights.size > 4 * keys.length + 1000) {
      for (const key of this.#heights.keys()) if (!places.has(key)) this.#heights.delete(key);
    }
  }

  /** Choose the slice around a row, whatever was shown before; the list then scrolls to the row. */
  show(index: number, viewPx: number): void {
    this.#shown = [];
    this.first = Math.max(0, index);
    this.end = Math.min(this.#keys.length, index + 1);
    let above = 0;
    while (this.first > 0 && above < AHEAD_PX) above += this.#height(--this.first);
    let below = 0;
    while (this.end < this.#keys.length && below < viewPx + AHEAD_PX) {
      below += this.#height(this.end++);
    }
    this.top = this.#sum(0, this.first);
  }

  /** Choose the slice for a scroll position. True: it has changed, so render it. */
  look(scrollTop: number, viewPx: number): boolean {
    const [from, to] = [scrollTop - AHEAD_PX, scrollTop + viewPx + AHEAD_PX];
    const [keptFrom, keptTo] = [scrollTop - KEPT_PX, scrollTop + viewPx + KEPT_PX];
    let { first, end } = this;
    let start = this.top;
    let stop = start + this.#sum(first, end);
    while (first > 0 && start > from) start -= this.#height(--first);
    while (end < this.#keys.length && stop < to) stop += this.#height(end++);
    while (first < end - 1 && start + this.#height(first) < keptFrom) {
      start += this.#height(first++);
    }
    while (end > first + 1 && stop - this.#height(end - 1) > keptTo) {
      stop -= this.#height(--end);
    }
    if (first === this.first && end === this.end) return false;
    // No row of the last layout stays, so the position can only be estimated.
    if (first >= this.end || end <= this.first) {
      this.top = Math.max(0, start);
      this.#shown = [];
    }
    this.first = first;
    this.end = end;
    return true;
  }

  /**
   * The slice has been laid out; `heights` are those of its rows. Returns by how much the scroll
   * position has to be moved, so that visible rows stay where they are.
   *
   * `isStart`: nothing comes before the first row, so there is no space above it.
   */
  settle(heights: readonly number[], scrollTop: number, isStart: boolean): number {
    const shown = heights.map((height, at) => ({ key: this.#keys[this.first + at]!, height }));
    for (const { key, height } of shown) this.#heights.set(key, height);
    let top = this.#topThatKeeps(shown, scrollTop) ?? this.top;
    let move = 0;
    if (top < 0) {
      move = this.first === 0 && isStart ? -top : HEADROOM_PX + this.#sum(0, this.first) - top;
    } else if (this.first === 0 && isStart) {
      move = -top;
    }
    top += move;
    this.top = top;
    this.bottom = this.#sum(this.end, this.#keys.length);
    this.#shown = shown;
    return move;
  }

  /** Where a row begins, as far as heights are known. */
  offsetOf(index: number): number {
    return index < this.first
      ? this.top - this.#sum(index, this.first)
      : this.top + this.#sum(this.first, index);
  }

  /** The row at a position. */
  indexAt(position: number): number {
    let at = this.top;
    for (let index = this.first; index < this.end; index++) {
      at += this.#height(index);
      if (at > position) return index;
    }
    return Math.max(0, this.end - 1);
  }

  /** The height of the space above with which the first visible row stays in its place. */
  #topThatKeeps(shown: readonly Shown[], scrollTop: number): number | null {
    const places = new Map<string, number>();
    let above = 0;
    for (const { key, height } of shown) {
      places.set(key, above);
      above += height;
    }
    let offset = this.top;
    let kept: number | null = null;
    for (const { key, height } of this.#shown) {
      const place = places.get(key);
      if (place !== undefined) {
        kept = offset - place;
        if (offset + height > scrollTop) return kept;
      }
      offset += height;
    }
    return kept;
  }

  #height(index: number): number {
    const key = this.#keys[index]!;
    return this.#heights.get(key) ?? this.#guess(key);
  }

  #sum(from: number, to: number): number {
    let sum = 0;
    for (let index = from; index < to; index++) sum += this.#height(index);
    return sum;
  }
}
