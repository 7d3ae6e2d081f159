// Builds the files that the server serves into src/tidewire/web/static, or the directory that is
// given.
//
// The same sources give the same bytes: names have the hash of their content, and compressed copies
// have no timestamps. `--compare` builds in memory and says which files differ from the directory;
// the bytes of compressed copies are not compared, because another zlib compresses differently.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";
import { bundle, root } from "./targets.mjs";

const STATIC = fileURLToPath(new URL("../../src/tidewire/web/static", import.meta.url));
const PACKED = /\.(br|gz)$/;
/** Compressing less than this saves nothing. */
const PACKED_BYTES_MIN = 512;

/** Builds all files, by name, and lists which of them a page loads. */
export async function files() {
  // App and widget are built separately: few people need both, and each leaves out unused code.
  const made = new Map();
  const app = await part(made, "app/src/main.tsx", "app");
  const style = await part(made, "app/src/style.css", "style");
  const icon = readFileSync(join(root, "app/src/icon.svg"));
  const iconName = `assets/icon-${hash(icon)}.svg`;
  made.set(iconName, icon);
  // The files that the page needs to open without a server.
  const kept = [...made.keys()].sort();
  const widget = await part(made, "widget/src/main.tsx", "widget");
  made.set("manifest.webmanifest", manifest(iconName));

  const page = readFileSync(join(root, "app/src/index.html"), "utf8")
    .replace("{icon}", `/${iconName}`)
    .replace("{style}", `/${style.name}`)
    .replace("{script}", `/${app.name}`)
    .replace(
      "{parts}",
      app.parts.map((part) => `<link rel="modulepreload" href="/${part}">`).join("\n  "),
    );
  made.set("index.html", Buffer.from(page));

  made.set(
    "widget.js",
    await script("widget/src/loader.ts", { WIDGET: widget.name, WIDGET_PARTS: widget.parts }),
  );
  const version = hash(Buffer.concat([...made.values()]));
  made.set("sw.js", await script("app/src/worker.ts", { KEPT: kept, VERSION: version }));
  const loads = {
    app: [app.name, ...app.parts, ...app.more, ...app.rare],
    style: [style.name],
    widget: ["widget.js", widget.name, ...widget.parts],
    widgetConnected: ["widget.js", widget.name, ...widget.parts, ...widget.more],
    widgetWhole: ["widget.js", widget.name, ...widget.parts, ...widget.more, ...widget.rare],
  };
  return { made, loads };
}

/** Builds a source and everything that it loads; returns its name and those of its parts. */
async function part(made, source, name) {
  const { outputFiles, metafile } = await build({
    ...bundle,
    entryPoints: { [name]: source },
    outdir: "/assets",
    splitting: true,
    write: false,
    metafile: true,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
  });
  for (const file of outputFiles) made.set(file.path.slice(1), Buffer.from(file.contents));
  return outputOf(metafile, source);
}

/** The output of a source, the parts that it loads at once, and those that it loads on demand. */
function outputOf(metafile, entry) {
  const [name, output] = Object.entries(metafile.outputs).find(
    ([, output]) => output.entryPoint === entry,
  );
  const parts = new Set();
  const gather = (output) => {
    for (const { path, kind } of output.imports) {
      if (kind !== "import-statement" || parts.has(path)) continue;
      parts.add(path);
      gather(metafile.outputs[path]);
    }
  };
  gather(output);
  const place = (path) => relative("/", join("/", path)).replace(/^(\.\.\/)+/, "");
  // The client's parts on demand: `more` to connect, which is right away, and `rare` for the rest.
  const part = (stem) =>
    Object.keys(metafile.outputs)
      .filter((path) => path.includes(`/${stem}-`))
      .map(place);
  return {
    name: place(name),
    parts: [...parts].map(place).sort(),
    more: part("more"),
    rare: part("rare"),
  };
}

/** A script in one file, for a name without a hash. */
async function script(source, values) {
  const define = Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, JSON.stringify(value)]),
  );
  const { outputFiles } = await build({
    ...bundle,
    entryPoints: [source],
    format: "iife",
    define,
    write: false,
  });
  return Buffer.from(outputFiles[0].contents);
}

function manifest(icon) {
  const described = {
    name: "Tidewire",
    short_name: "Tidewire",
    start_url: "/",
    display: "standalone",
    background_color: "#f4f6f6",
    theme_color: "#0e6e75",
    icons: [{ src: `/${icon}`, sizes: "any", type: "image/svg+xml", purpose: "any" }],
  };
  return Buffer.from(`${JSON.stringify(described)}\n`);
}

function hash(bytes) {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 8);
}

/** The same files, with compressed copies. */
function packed(made) {
  const all = new Map(made);
  for (const [name, bytes] of made) {
    if (bytes.length < PACKED_BYTES_MIN) continue;
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    };
    all.set(`${name}.br`, brotliCompressSync(bytes, { params }));
    all.set(`${name}.gz`, gzipSync(bytes, { level: 9 }));
  }
  return all;
}

function write(directory, made) {
  rmSync(directory, { recursive: true, force: true });
  for (const [name, bytes] of made) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), bytes);
  }
}

/** The differences between the built files and a directory. */
function differences(made, directory) {
  const there = existsSync(directory)
    ? readdirSync(directory, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => relative(directory, join(entry.parentPath ?? entry.path, entry.name)))
    : [];
  const found = there
    .filter((name) => !PACKED.test(name) && !made.has(name))
    .map((name) => `${name}: not built any more`);
  for (const [name, bytes] of made) {
    if (PACKED.test(name)) {
      if (!there.includes(name)) found.push(`${name}: missing`);
    } else if (!there.includes(name)) {
      found.push(`${name}: missing`);
    } else if (!bytes.equals(readFileSync(join(directory, name)))) {
      found.push(`${name}: other bytes`);
    }
  }
  return found.sort();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [directory = STATIC] = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  const made = packed((await files()).made);
  if (process.argv.includes("--compare")) {
    const found = differences(made, directory);
    for (const line of found) console.error(line);
    if (found.length) {
      console.error("src/tidewire/web/static is not what web/ builds; run 'make web'");
      process.exit(1);
    }
    console.log(`${made.size} files are as they are built`);
  } else {
    write(directory, made);
    console.log(`${directory}: ${made.size} files`);
  }
}
