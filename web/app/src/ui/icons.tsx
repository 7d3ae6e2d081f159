// Small pictures, in the colour of the text. They say nothing to screen readers: what they stand on
// has a name.

export function Icon({ path }: { path: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={path} />
    </svg>
  );
}
