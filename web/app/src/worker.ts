// The service worker: the page opens without the server, with the files of the last visit.
//
// The page itself is requested from the server first, so that a new version is seen at once; if
// the server fails or takes too long, the copy is shown. Files with a hash in their name never
// change, so the copy is used. The files of the previous version are kept: a tab with it may still
// be open, and may load a part only now, when the server does not have it any more. All other
// requests go past this worker, so no messages pass through it.

declare const KEPT: readonly string[];
declare const VERSION: string;

interface WorkerEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface FetchEvent extends WorkerEvent {
  readonly request: Request;
  respondWith(answer: Promise<Response>): void;
}
interface Worker {
  addEventListener(type: "install" | "activate", listener: (event: WorkerEvent) => void): void;
  addEventListener(type: "fetch", listener: (event: FetchEvent) => void): void;
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
  readonly location: Location;
}

const worker = globalThis as unknown as Worker;
const CACHE = `tidewire-${VERSION}`;
const PAGE = "/";
const PAGE_MS_MAX = 3000;

worker.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll([PAGE, ...KEPT.map((name) => `/${name}`)]))
      .then(() => worker.skipWaiting()),
  );
});

worker.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) =>
        Promise.all(
          // Names come in the order of creation: the last one is the previous version.
          names
            .filter((name) => name.startsWith("tidewire-") && name !== CACHE)
            .slice(0, -1)
            .map((name) => caches.delete(name)),
        ),
      )
      .then(() => worker.clients.claim()),
  );
});

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== worker.location.origin) return;
  if (url.pathname === PAGE) event.respondWith(page(request));
  else if (url.pathname.startsWith("/assets/")) event.respondWith(asset(request));
});

async function page(request: Request): Promise<Response> {
  const asked = fetch(request);
  // Errors are handled below; without this the browser would report an unhandled rejection.
  asked.catch(() => undefined);
  const copy = await (await caches.open(CACHE)).match(PAGE);
  if (!copy) return asked;
  const patience = new Promise<Response>((resolve) => {
    setTimeout(resolve, PAGE_MS_MAX, copy);
  });
  try {
    const answer = await Promise.race([asked, patience]);
    return answer.ok ? answer : copy;
  } catch {
    return copy;
  }
}

async function asset(request: Request): Promise<Response> {
  return (await caches.match(request)) ?? fetch(request);
}

export {};
