// What scripts/targets.mjs makes of a style: its text.
declare module "style:*" {
  const text: string;
  export default text;
}
