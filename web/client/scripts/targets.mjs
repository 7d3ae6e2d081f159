// How the package is built: one place for `build`, `size` and the tests.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, extname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { minify } from "terser";

export const root = fileURLToPath(new URL("..", import.meta.url));

/**
 * What is loaded at once is one file, not one for each set of parts that share something: each part
 * that comes on demand imports the entry, which is there before it in any case.
 */
export const inOneFile = {
  name: "in-one-file",
  setup({ initialOptions, onResolve, onLoad, resolve: found }) {
    const { entryPoints, absWorkingDir } = initialOptions;
    const entries = Object.values(entryPoints).map((path) => resolve(absWorkingDir, path));
    const parts = new Set();
    onResolve({ filter: /^\./ }, async ({ path, kind, resolveDir, pluginData }) => {
      if (kind !== "dynamic-import" || pluginData?.isAsked) return;
      const part = await found(path, { kind, resolveDir, pluginData: { isAsked: true } });
      parts.add(part.path);
      return part;
    });
    onLoad({ filter: /\.tsx?$/ }, async ({ path }) => {
      if (!parts.has(path)) return;
      const source = await readFile(path, "utf8");
      const imports = entries.map((entry) => `import ${JSON.stringify(entry)};`).join("\n");
      return { contents: `${source}\n${imports}\n`, loader: extname(path).slice(1) };
    });
  },
};

const { version } = createRequire(import.meta.url)("terser/package.json");

const HOW = { ecma: 2020, module: true, compress: { passes: 2 } };

/**
 * What esbuild has minified goes through terser as well, which finds 2 to 3 % more. A name with a hash
 * has that of esbuild's text, so this one's version and options stand in a comment of it, which terser
 * drops.
 */
export const smaller = {
  name: "smaller",
  setup({ initialOptions, onEnd }) {
    const { write = true, sourcemap } = initialOptions;
    initialOptions.write = false;
    initialOptions.footer = { js: `//terser ${version} ${JSON.stringify(HOW)}` };
    onEnd(async ({ outputFiles = [] }) => {
      const textOf = new Map(outputFiles.map((file) => [file.path, file.text]));
      for (const file of outputFiles) {
        if (!file.path.endsWith(".js")) continue;
        const map = `${file.path}.map`;
        const content = textOf.get(map);
        const { code, map: remade } = await minify(file.text, {
          ...HOW,
          sourceMap: sourcemap && { content, url: `${file.path.split("/").at(-1)}.map` },
        });
        textOf.set(file.path, code);
        if (remade) textOf.set(map, remade);
      }
      for (const file of outputFiles) {
        file.contents = Buffer.from(textOf.get(file.path));
        if (!write) continue;
        await mkdir(dirname(file.path), { recursive: true });
        await writeFile(file.path, file.contents);
      }
    });
  },
};

/** The browsers that are meant: those with Web Locks, BroadcastChannel and strict IndexedDB. */
const target = ["es2022", "chrome111", "firefox115", "safari16.4"];

/** Names inside that have no underscore, because parts of the client call each other by them. None
 * of them is stored, sent, or given out. */
const INSIDE = `
  atMs byChat countedThrough countUnread digestAnswered digestFailed
  finishRenewal flyingCount giveUp hasSocket heartbeatAnswered heartbeatSent
  isBatching isBehind isCaughtUp isComplete isDigestComplete isDown isDue isErasing isEstablished
  isHeartbeatDue isHeld isHere isInDoubt isLeading isListed isLoggedIn isOnce isOpen isPublic isRefused isRenewing
  isSilent letGo markLeft maySend mergeDigest mergeStatus needsNewToken newId nextDeadlineMs
  offerPage onCommand onDeposed onEnd onFrame onLead onNews onOpen onTaken othersThrough
  ownAnswered ownSent ownStored ownThrough pageRefused readThrough readTold renewAtMs resubmit
  retryAfterMs retryAtMs sendsFlying setMeta sharedAs socketUrl stopSyncing
  takeDigest takePages toldAtMs unmention unsaved waitingChats wallMs wantDigest withNewToken
`;

export const browser = {
  absWorkingDir: root,
  entryPoints: { index: "src/index.ts" },
  bundle: true,
  format: "esm",
  // What not every tab needs at once (shell/more.ts) comes on demand.
  splitting: true,
  chunkNames: "[name]-[hash]",
  target,
  minify: true,
  legalComments: "none",
  plugins: [inOneFile, smaller],
  // A leading underscore is "inside"; nothing stored or sent is named so.
  mangleProps: new RegExp(`^(_[a-z].*|${INSIDE.trim().split(/\s+/).join("|")})$`),
};

export const node = {
  absWorkingDir: root,
  entryPoints: { node: "src/node.ts" },
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20",
  packages: "external",
  legalComments: "none",
};
