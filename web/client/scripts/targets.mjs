// How the package is built: one place for `build`, `size` and the tests.

import { readFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

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
  takeDigest takePages toldAtMs unmention waitingChats wallMs wantDigest withNewToken
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
  plugins: [inOneFile],
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
