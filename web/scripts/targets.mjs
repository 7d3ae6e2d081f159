// The build options for browsers: one place for `build`, `size` and the tests.

import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { browser, inOneFile, smaller } from "../client/scripts/targets.mjs";

export const root = fileURLToPath(new URL("..", import.meta.url));

/**
 * `style:./x.css`: a style of the widget as a text inside the script. In the widget, a rem would
 * depend on the page around it, so lengths are converted to pixels; these still zoom with the page.
 */
const styleAsText = {
  name: "style-as-text",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^style:/ }, ({ path, resolveDir }) => ({
      // Relative to the root: names of files must be the same wherever this is built.
      path: relative(root, join(resolveDir, path.slice("style:".length))),
      namespace: "style",
    }));
    onLoad({ filter: /.*/, namespace: "style" }, async ({ path }) => {
      const { outputFiles } = await build({
        absWorkingDir: root,
        entryPoints: [path],
        bundle: true,
        minify: true,
        target: browser.target,
        write: false,
      });
      const inPixels = (_, rems) => `${Number(rems) * 16}px`;
      const text = outputFiles[0].text.replace(/(\d*\.?\d+)rem\b/g, inPixels).trim();
      return { contents: text, loader: "text" };
    });
  },
};

export const bundle = {
  absWorkingDir: root,
  bundle: true,
  format: "esm",
  target: browser.target,
  minify: true,
  legalComments: "none",
  mangleProps: browser.mangleProps,
  jsx: "automatic",
  jsxImportSource: "preact",
  // The client's source, so that the client need not be built before.
  alias: { "@tidewire/client": "./client/src/index.ts" },
  plugins: [styleAsText, inOneFile, smaller],
};
