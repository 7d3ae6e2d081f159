import{R as a,S as b}from"./chunk-XPB5HJUY.js";export{a as TidewireChat,b as define};
