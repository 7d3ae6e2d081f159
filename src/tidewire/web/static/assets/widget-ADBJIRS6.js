import{R as a,S as b}from"./chunk-HF7LMUVS.js";export{a as TidewireChat,b as define};
