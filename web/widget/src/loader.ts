// widget.js: the script that a page includes. It is small and requested at each visit, so that
// pages get a new version without a change; browsers may cache the widget's own files for ever.

declare const WIDGET: string;
declare const WIDGET_PARTS: readonly string[];

const { src } = document.currentScript as HTMLScriptElement;
const server = new URL(src).origin;

for (const part of [WIDGET, ...WIDGET_PARTS]) {
  const link = document.createElement("link");
  link.rel = "modulepreload";
  link.href = `${server}/${part}`;
  document.head.append(link);
}

void import(`${server}/${WIDGET}`).then(({ define }) => define(server));

export {};
