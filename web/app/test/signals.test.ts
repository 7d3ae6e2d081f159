import assert from "node:assert/strict";
import { test } from "node:test";
import { cloneElement, createElement, Fragment } from "preact";
import { computed, effect, signal } from "../src/model/signals.ts";

test("an effect runs with each change of what it read, and cleans up before", () => {
  const name = signal("ann");
  const heard: string[] = [];
  const stop = effect(() => {
    const now = name.value;
    heard.push(now);
    return () => heard.push(`no ${now}`);
  });
  name.value = "ben";
  name.value = "ben";
  stop();
  name.value = "cleo";
  assert.deepEqual(heard, ["ann", "no ann", "ben", "no ben"]);
});

test("an effect follows what it read last, and nothing that it only peeked at", () => {
  const isOn = signal(true);
  const inside = signal(1);
  const aside = signal(1);
  let runs = 0;
  effect(() => {
    runs++;
    if (isOn.value) void inside.value;
    aside.peek();
  });
  aside.value++;
  assert.equal(runs, 1);
  inside.value++;
  assert.equal(runs, 2);
  isOn.value = false;
  assert.equal(runs, 3);
  inside.value++;
  assert.equal(runs, 3);
});

test("a computed value is worked out once for each change, when it is read", () => {
  const count = signal(2);
  let works = 0;
  const double = computed(() => {
    works++;
    return count.value * 2;
  });
  assert.equal(works, 0);
  assert.deepEqual([double.value, double.value, works], [4, 4, 1]);
  count.value = 5;
  count.value = 6;
  assert.deepEqual([double.value, works], [12, 2]);
});

test("what reads a computed value moves with what that reads", () => {
  const first = signal("a");
  const twice = computed(() => first.value + first.value);
  const more = computed(() => `${twice.value}!`);
  const heard: string[] = [];
  effect(() => {
    heard.push(more.value);
  });
  first.value = "b";
  assert.deepEqual(heard, ["aa!", "bb!"]);
});

/** A component as Preact mounts it, as far as the signals need it. */
function mounted(component: () => unknown) {
  const { type } = createElement(component as never, null);
  const instance = {
    props: { a: 1 } as object,
    updates: 0,
    forceUpdate() {
      this.updates++;
    },
    shouldComponentUpdate: undefined as undefined | ((next: object) => boolean),
    componentWillUnmount: undefined as undefined | (() => void),
    render() {
      return (type as (props: object) => unknown).call(instance, instance.props);
    },
  };
  instance.render();
  return instance;
}

test("a component is rendered again when a signal moves that it read, until it is gone", () => {
  const name = signal("ann");
  const one = mounted(() => name.value);
  name.value = "ben";
  assert.equal(one.updates, 1);
  assert.equal(one.render(), "ben");
  one.componentWillUnmount?.();
  name.value = "cleo";
  assert.equal(one.updates, 1);
});

test("a component that read signals is not rendered again for its parent, unless props differ", () => {
  const name = signal("ann");
  const reading = mounted(() => name.value);
  assert.equal(reading.shouldComponentUpdate?.({ a: 1 }), false);
  assert.equal(reading.shouldComponentUpdate?.({ a: 2 }), true);
  assert.equal(reading.shouldComponentUpdate?.({ a: 1, b: 1 }), true);
  const plain = mounted(() => "plain");
  assert.equal(plain.shouldComponentUpdate?.({ a: 1 }), true);
});

test("the same component stays the same, and fragments and elements are left alone", () => {
  const component = () => null;
  const node = createElement(component, null);
  assert.equal(createElement(component, null).type, node.type);
  assert.equal(cloneElement(node).type, node.type);
  assert.equal(createElement(Fragment, null).type, Fragment);
  assert.equal(createElement("p", null).type, "p");
});

test("one component inside of another does not follow for it", () => {
  const outer = signal(1);
  const inner = signal(1);
  const child = mounted(() => inner.value);
  const parent = mounted(() => {
    void outer.value;
    child.render();
    return null;
  });
  inner.value++;
  assert.deepEqual([parent.updates, child.updates], [0, 1]);
  outer.value++;
  assert.equal(parent.updates, 1);
});
