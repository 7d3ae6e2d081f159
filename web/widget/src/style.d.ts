// scripts/targets.mjs turns an import of a style into its text.
declare module "style:*" {
  const text: string;
  export default text;
}
