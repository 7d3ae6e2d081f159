import{R as a,S as b}from"./chunk-IAGFMDQY.js";export{a as TidewireChat,b as define};
