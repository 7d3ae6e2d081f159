/** Converts the server's values for the application: `joined_at` becomes `joinedAt`, and a Date. */

// biome-ignore lint/suspicious/noExplicitAny: the caller's type says what the value is
export const shownAs = <T>(told: any): T => {
  if (Array.isArray(told)) return told.map(shownAs) as T;
  if (!told || typeof told !== "object") return told;
  return Object.fromEntries(
    Object.entries(told).map(([name, value]) => [
      name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()),
      name.endsWith("_at") && typeof value === "string" ? new Date(value) : shownAs(value),
    ]),
  ) as T;
};
