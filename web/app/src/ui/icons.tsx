// Icons, in the colour of the text. They are hidden from screen readers: their button or text has a
// name.

export function Icon({ path }: { path: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={path} />
    </svg>
  );
}
