// The paths of the icons. Each is an export of its own, so that a build leaves out unused ones.

export const back = "M15 5l-7 7 7 7";
export const close = "M6 6l12 12M18 6L6 18";
export const plus = "M12 5v14M5 12h14";
export const search =
  "M10.500 4a6.500 6.500 0 1 1 0 13a6.500 6.500 0 0 1 0-13zM15.500 15.500L20 20";
export const more = "M5 12h.01M12 12h.01M19 12h.01";
export const reply = "M10 6L4 12l6 6M4 12h9a7 7 0 0 1 7 7";
export const edit = "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3";
export const copy = "M9 9h11v11H9zM5 15H4V4h11v1";
export const trash = "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5";
export const smile =
  "M12 3a9 9 0 1 1 0 18a9 9 0 0 1 0-18zM8.500 14a4.500 4.500 0 0 0 7 0M9 9.500h.01M15 9.500h.01";
export const send = "M4 12l16-8-6 16-3-7z";
export const check = "M5 12.500l4.500 4.500L19 7";
export const down = "M6 9l6 6 6-6";
export const bell = "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4";
export const bellOff = "M6 16V11a6 6 0 0 1 9-5.200M18 11v5l2 2H8M10 21h4M4 4l16 16";
export const info = "M12 3a9 9 0 1 1 0 18a9 9 0 0 1 0-18zM12 11v5M12 8h.01";
export const people =
  "M9 5a3.500 3.500 0 1 1 0 7a3.500 3.500 0 0 1 0-7zM2.500 19a6.500 6.500 0 0 1 13 0M16 5.500a3.500 3.500 0 0 1 0 6.500M18 14a6.500 6.500 0 0 1 3.500 5";
export const gear =
  "M4 7h9M19 7h1M4 17h1M11 17h9M16 4.500a2.500 2.500 0 1 1 0 5a2.500 2.500 0 0 1 0-5zM8 14.500a2.500 2.500 0 1 1 0 5a2.500 2.500 0 0 1 0-5z";
export const forward = "M5 12h14M13 6l6 6-6 6";
export const block = "M12 3a9 9 0 1 1 0 18a9 9 0 0 1 0-18zM5.600 5.600l12.800 12.800";
export const hide = "M3 12s3.500-6 9-6 9 6 9 6-3.500 6-9 6-9-6-9-6zM4 4l16 16";
export const out = "M14 4h6v16h-6M11 8l-4 4 4 4M7 12h9";
export const crown = "M4 18h16M4 15l-1-8 5 4 4-6 4 6 5-4-1 8z";
export const alert = "M12 3.500L2.500 20h19zM12 10v4.500M12 17.500h.01";
export const cloudOff =
  "M7 18a4.500 4.500 0 0 1-.500-9M9.500 6.200A6 6 0 0 1 17.500 10a4 4 0 0 1 2.500 6.500M4 4l16 16";
