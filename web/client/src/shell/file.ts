/**
 * A store in one file, for Node: the data in memory, and a journal of its changes.
 *
 * A line is one group of transactions: those that waited while the last line was being synced. It
 * begins with a checksum, so a line that a crash has torn is recognised; only the last line can be
 * torn, because nothing is written behind a line that is not on the disk. When the journal is much
 * longer than its content, or a text was deleted, it is written to a new file beside the old one,
 * which then takes the old one's place. Only one process at a time can open it.
 */

import { createHash } from "node:crypto";
import { type FileHandle, open, readFile, realpath, rename, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import type { Mode } from "./backend.ts";
import { TABLES } from "./backend.ts";
import { StoreUnusable } from "./errors.ts";
import { type Change, MemoryBackend } from "./memory.ts";

const FORM = "tidewire-client 1";
/** The journal is rewritten if it is longer than this and `GROWTH` times as long as after the last
 * rewrite. */
const LENGTH_MIN = 4 * 1024 * 1024;
const GROWTH = 4;

const sum = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 16);
const lineOf = (changes: readonly Change[]): string => {
  const text = JSON.stringify(changes);
  return `${sum(text)} ${text}\n`;
};

/** A lock that only this process holds; the system releases it when the process ends in any way. */
const lock = async (path: string): Promise<Server> => {
  // With links in the path resolved, so that each file has one name.
  const place = await realpath(dirname(path)).catch(() => dirname(path));
  const name = `tidewire-${sum(join(place, basename(path)))}`;
  const address =
    process.platform === "linux"
      ? `\0${name}`
      : process.platform === "win32"
        ? `\\\\.\\pipe\\${name}`
        : join(tmpdir(), name);
  const server = createServer();
  await new Promise<void>((done, fail) => {
    server.once("error", fail);
    server.listen(address, done);
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    throw new StoreUnusable(
      `the store ${path} is in use by another process; ` +
        "end that one first, or give this one a store of its own",
    );
  });
  server.unref();
  return server;
};

export class FileBackend extends MemoryBackend {
  override readonly isDurable = true;
  private _file: FileHandle | undefined;
  /** In bytes, like `_least`. */
  private _length = 0;
  /** The length of the journal after its last rewrite. */
  private _least = 0;
  private _waiting: [Change[], isErasing: boolean, () => void, (error: unknown) => void][] = [];
  private _isWriting = false;
  private _fault: unknown;

  private constructor(
    private _path: string,
    private _lock: Server,
  ) {
    super();
  }

  /** Throws StoreUnusable. */
  static async open(name: string): Promise<FileBackend> {
    const path = resolve(name);
    const backend = new FileBackend(path, await lock(path));
    try {
      await backend._load();
    } catch (error) {
      await backend._file?.close();
      backend._lock.close();
      if (error instanceof StoreUnusable) throw error;
      throw new StoreUnusable(`cannot open the store ${path}: ${error}`);
    }
    return backend;
  }

  private async _load(): Promise<void> {
    // The file has the tokens: no other user may read it, from its creation on.
    this._file = await open(this._path, "a+", 0o600);
    await this._file.chmod(0o600);
    const bytes = await readFile(this._path);
    this._length = bytes.length;
    const text = bytes.toString("utf8");
    if (!text.length) {
      await this._rewrite();
      return;
    }
    const lines = text.split("\n");
    if (lines[0] !== FORM)
      throw new StoreUnusable(
        /^tidewire-client /.test(text)
          ? `${this._path} was written by a newer Tidewire; install that one`
          : `${this._path} is a file of some other program; name another one`,
      );
    // A last line without its line end was never completed.
    const torn = lines.pop()!;
    let isTorn = torn !== "";
    for (let at = 1; at < lines.length; at++) {
      const line = lines[at]!;
      const changes = line.slice(17);
      if (sum(changes) !== line.slice(0, 16)) {
        if (at < lines.length - 1)
          throw new StoreUnusable(
            `${this._path} is damaged in line ${at + 1}: put a copy of it back, or delete it and ` +
              "log in again; what the server has comes back by itself",
          );
        isTorn = true;
        break;
      }
      for (const change of JSON.parse(changes) as Change[]) this.change(change);
    }
    if (isTorn) await this._rewrite();
  }

  protected override changed(changes: Change[], mode: Mode, isErasing: boolean): Promise<void> {
    const done = new Promise<void>((resolve, reject) => {
      this._waiting.push([changes, isErasing, resolve, reject]);
    });
    if (!this._isWriting) {
      this._isWriting = true;
      this._write();
    }
    // Nothing depends on a write that is not strict, so it is not awaited; if it fails, the next
    // strict one fails too.
    if (mode === "strict") return done;
    done.catch(() => {});
    return Promise.resolve();
  }

  /** Write everything that waits as one line, with one sync. */
  private async _write(): Promise<void> {
    while (this._waiting.length) {
      const group = this._waiting;
      this._waiting = [];
      try {
        if (this._fault) throw this._fault;
        const isLong = this._length > LENGTH_MIN && this._length > GROWTH * this._least;
        if (isLong || group.some(([, isErasing]) => isErasing)) {
          // After it, no line has the deleted text.
          await this._rewrite();
        } else {
          const line = lineOf(group.flatMap(([changes]) => changes));
          await this._file!.appendFile(line);
          await this._file!.datasync();
          this._length += Buffer.byteLength(line);
        }
        for (const [, , done] of group) done();
      } catch (error) {
        // It is unknown now what is on the disk: nothing more is written.
        this._fault ??= new StoreUnusable(`the store ${this._path} cannot be written: ${error}`);
        for (const [, , , failed] of group) failed(this._fault);
      }
    }
    this._isWriting = false;
  }

  /** Write all data as one line into a new file, then rename it over the old one. */
  private async _rewrite(): Promise<void> {
    const changes = TABLES.flatMap((name) =>
      this.table(name)
        .all({})
        .map((record): Change => [name, record]),
    );
    const text = `${FORM}\n${lineOf(changes)}`;
    const beside = `${this._path}.new`;
    const file = await open(beside, "w", 0o600);
    await file.writeFile(text);
    await file.sync();
    await rename(beside, this._path);
    const directory = await open(dirname(this._path), "r");
    // Not all systems can sync a directory; those that cannot keep a rename without it.
    await directory.sync().catch(() => {});
    await directory.close();
    await this._file?.close();
    await file.close();
    this._file = await open(this._path, "a+", 0o600);
    this._length = this._least = Buffer.byteLength(text);
  }

  override async close(): Promise<void> {
    await super.close();
    while (this._isWriting) await new Promise((done) => setTimeout(done, 1));
    await this._file?.close();
    this._lock.close();
  }

  override async destroy(): Promise<void> {
    await this.close();
    await rm(this._path, { force: true });
  }
}
