// Signals: values whose readers run again when they change. A reader is a component, an effect or a
// computed value.
//
// Only what is used here, in a tenth of the size of a library. Components are hooked in through
// Preact's documented hook for new nodes, without its internals.

import { type Component, Fragment, options } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";

/** A reader of signals, and the sets of readers in which it is registered. */
interface Reader {
  readonly moved: () => void;
  readonly noted: Set<Set<Reader>>;
}

let reading: Reader | null = null;

const readerOf = (moved: () => void): Reader => ({ moved, noted: new Set() });

function forget(reader: Reader): void {
  for (const readers of reader.noted) readers.delete(reader);
  reader.noted.clear();
}

/** Run `work`, and register the reader for the signals that it reads, instead of earlier ones. */
function follow<T>(reader: Reader, work: () => T): T {
  const before = reading;
  forget(reader);
  reading = reader;
  try {
    return work();
  } finally {
    reading = before;
  }
}

export class Signal<T> {
  #value: T;
  #readers = new Set<Reader>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    if (reading) {
      this.#readers.add(reading);
      reading.noted.add(this.#readers);
    }
    return this.#value;
  }

  set value(value: T) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const reader of [...this.#readers]) reader.moved();
  }

  /** The value, without registering the reader. */
  peek(): T {
    return this.#value;
  }
}

export interface ReadonlySignal<T> {
  readonly value: T;
}

export const signal = <T>(value: T): Signal<T> => new Signal(value);

/** A value that is computed when it is read, and again after a signal that it read has changed. */
export function computed<T>(work: () => T): ReadonlySignal<T> {
  const moves = signal(0);
  let known: { value: T } | null = null;
  const reader = readerOf(() => {
    known = null;
    moves.value++;
  });
  return {
    get value() {
      void moves.value;
      known ??= { value: follow(reader, work) };
      return known.value;
    },
  };
}

/** Run `work` now and whenever a signal that it read has changed. If it returns a function, that is
 * called before the next run, and at the end. Returns a function that ends it. */
export function effect(work: () => unknown): () => void {
  let last: unknown;
  const cleanUp = () => {
    if (typeof last === "function") last();
  };
  const run = () => {
    cleanUp();
    last = follow(reader, work);
  };
  const reader = readerOf(run);
  run();
  return () => {
    forget(reader);
    cleanUp();
  };
}

export const useSignal = <T>(value: T): Signal<T> => useMemo(() => signal(value), []);

export function useSignalEffect(work: () => unknown): void {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => effect(() => latest.current()), []);
}

// Components.

type Rendering = (this: Component, props: object, context: unknown) => unknown;

const followers = new WeakMap<Rendering, Rendering>();
const readers = new WeakMap<Component, Reader>();

/** Wrap a component so that it renders again when a signal that it read has changed. If it reads
 * any and has the same props, it does not render with its parent: scrolling renders few rows. */
function following(render: Rendering): Rendering {
  let follower = followers.get(render);
  if (!follower) {
    follower = function (props, context) {
      let reader = readers.get(this);
      if (!reader) {
        const made = readerOf(() => this.forceUpdate());
        this.shouldComponentUpdate = (next) => !made.noted.size || isOther(this.props, next);
        this.componentWillUnmount = () => forget(made);
        readers.set(this, (reader = made));
      }
      return follow(reader, () => render.call(this, props, context));
    };
    followers.set(render, follower);
    // A reused node has the wrapped type already, and must not be wrapped again.
    followers.set(follower, follower);
  }
  return follower;
}

function isOther(a: object, b: object): boolean {
  const names = Object.keys(a);
  return (
    names.length !== Object.keys(b).length ||
    names.some((name) => a[name as keyof object] !== b[name as keyof object])
  );
}

const before = options.vnode;
options.vnode = (node) => {
  const { type } = node;
  if (typeof type === "function" && type !== Fragment)
    node.type = following(type as unknown as Rendering) as unknown as typeof type;
  before?.(node);
};
